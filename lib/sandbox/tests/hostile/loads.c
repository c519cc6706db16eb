// Taking more than the limits grant (256 MiB of memory, 16 MiB of outputs, 40 processes), and staying after the end.
// Every load is bounded, because the control arm really makes it.
#include "hostile.h"
#include <pthread.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/shm.h>

static int x_fork_bomb(void) {
    static pid_t made[500];
    int count = 0, code = 0, hold[2];
    if (pipe(hold) < 0) return errno;
    for (; count < 500 && !code; count++) {
        pid_t child = fork();
        if (child == 0) { char byte; close(hold[1]); _exit(read(hold[0], &byte, 1) < 0); }
        if (child < 0) code = errno, count--;
        else made[count] = child;
    }
    close(hold[1]);
    for (int i = 0; i < count; i++) waitpid(made[i], NULL, 0);
    return code;
}
static void *idles(void *hold) { char byte; return read(*(int *)hold, &byte, 1) < 0 ? hold : NULL; }
static int x_thread_bomb(void) {
    static pthread_t made[500];
    int count = 0, code = 0, hold[2];
    if (pipe(hold) < 0) return errno;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (; count < 500 && !code; count++) { code = pthread_create(&made[count], &small, idles, &hold[0]); if (code) count--; }
    close(hold[1]);
    for (int i = 0; i < count; i++) pthread_join(made[i], NULL);
    return code;
}
static int touches(int flags, int fd, size_t size) {
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (at == MAP_FAILED) return errno;
    for (size_t i = 0; i < size; i += 4096) at[i] = 1;
    return munmap(at, size);
}
static int x_memory(void) { return touches(MAP_PRIVATE | MAP_ANONYMOUS, -1, 1400UL << 20); }
static int x_shared_memory(void) { return touches(MAP_SHARED | MAP_ANONYMOUS, -1, 1400UL << 20); }
static int x_memfd_bomb(void) {
    int fd = syscall(SYS_memfd_create, "x", 0);
    if (fd < 0) return errno;
    return ok(ftruncate(fd, 1400UL << 20)) ?: touches(MAP_SHARED, fd, 1400UL << 20);
}
static int fills(const char *path) {
    static char block[1 << 20];
    int fd = open(path, O_WRONLY | O_CREAT, 0600), code = fd < 0 ? errno : 0;
    for (int i = 0; i < 300 && !code; i++) code = write(fd, block, sizeof block) == sizeof block ? 0 : (errno ? errno : ENOSPC);
    if (fd >= 0) close(fd);
    unlink(path);
    return code;
}
static int x_shm_fill(void) { return fills("/dev/shm/xt-hostile-fill"); }
static int x_tmp_fill(void) { return fills("/tmp/xt-hostile-fill"); }
static int x_core_dump(void) {
    // A core would hold what the memory holds: its limit, raised as far as it goes.
    struct rlimit now;
    getrlimit(RLIMIT_CORE, &now);
    return now.rlim_max > 0 ? 0 : EPERM;
}
static int x_open_files(void) {
    struct rlimit now;
    getrlimit(RLIMIT_NOFILE, &now);
    now.rlim_cur = now.rlim_max;
    setrlimit(RLIMIT_NOFILE, &now);
    int code = 0;
    for (int i = 0; i < 300 && !code; i++) code = open("/dev/null", O_RDONLY) < 0 ? errno : 0;
    return code;
}
static int x_lock_memory(void) {
    char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? errno : ok(mlock(at, 1 << 20));
}
static int d_sysv_shm(void) { int id = shmget(0x7874, 4096, IPC_CREAT | 0600); return ok(id); }
static int d_sysv_msg(void) { int id = msgget(0x7874, IPC_CREAT | 0600); return ok(id); }
static int d_mq(void) { return ok(syscall(SYS_mq_open, "xt-hostile", O_CREAT | O_RDWR, 0600, NULL)); }
static int d_shm_left(void) { return writes("/dev/shm/xt-hostile-left"); }

// What an earlier arm left on the host: counted, and removed when asked to.
int left(int remove_it) {
    int shm = shmget(0x7874, 0, 0), msg = msgget(0x7874, 0), count = (shm >= 0) + (msg >= 0);
    count += access("/dev/shm/xt-hostile-left", F_OK) == 0;
    int queue = syscall(SYS_mq_open, "xt-hostile", O_RDONLY, 0, NULL);
    count += queue >= 0;
    if (remove_it) {
        if (shm >= 0) shmctl(shm, IPC_RMID, NULL);
        if (msg >= 0) msgctl(msg, IPC_RMID, NULL);
        if (queue >= 0) syscall(SYS_mq_unlink, "xt-hostile");
        unlink("/dev/shm/xt-hostile-left");
    }
    return count;
}

const struct attempt loads[] = {
    {"x_fork_bomb", x_fork_bomb}, {"x_thread_bomb", x_thread_bomb}, {"x_memory", x_memory},
    {"x_shared_memory", x_shared_memory}, {"x_memfd_bomb", x_memfd_bomb}, {"x_shm_fill", x_shm_fill},
    {"x_tmp_fill", x_tmp_fill}, {"x_core_dump", x_core_dump}, {"x_open_files", x_open_files},
    {"x_lock_memory", x_lock_memory}, {"d_sysv_shm", d_sysv_shm}, {"d_sysv_msg", d_sysv_msg}, {"d_mq", d_mq},
    {"d_shm_left", d_shm_left},
    {NULL, NULL},
};
