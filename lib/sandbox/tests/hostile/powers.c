// Gaining privileges, leaving the sandbox, reaching other processes, and running code that was not admitted.
#include "hostile.h"
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <time.h>

// Runs a program in a child and says whether it really ran: it then exits with 42.
static int ran(const char *path, char *const argv[]) {
    int status, report[2];
    if (pipe2(report, O_CLOEXEC) < 0) return errno;
    pid_t child = fork();
    if (child < 0) return errno;
    if (child == 0) {
        char *none[] = {NULL};
        execve(path, argv, none);
        int code = errno;
        if (write(report[1], &code, sizeof code) < 0) _exit(1);
        _exit(1);
    }
    close(report[1]);
    int code = 0;
    ssize_t got = read(report[0], &code, sizeof code);
    waitpid(child, &status, 0);
    if (got == sizeof code) return code;
    return WIFEXITED(status) && WEXITSTATUS(status) == 42 ? 0 : EACCES;
}
static int copies(const char *to_path) {
    static char bytes[1 << 20];
    int from = open(to.exe, O_RDONLY), into = open(to_path, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    if (from < 0 || into < 0) return errno;
    ssize_t size = read(from, bytes, sizeof bytes);
    int code = write(into, bytes, size) == size ? 0 : errno;
    close(into);
    close(from);
    return code;
}
static int runs_copy(const char *folder) {
    const char *path = join(folder, "xt-hostile-copy");
    char *argv[] = {"copy", "exit42", NULL};
    int code = copies(path) ?: ran(path, argv);
    unlink(path);
    return code;
}
static int p_suid_binary(void) { char *argv[] = {"suid", "euid0", NULL}; return ran(to.suid, argv); }
static int p_nnp(void) { return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 ? 0 : EPERM; }
static int p_userns(void) { return ok(unshare(CLONE_NEWUSER)); }
static int p_clone_ns(void) {
    long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    return ok(child);
}
static int p_clone3_ns(void) {
    struct { uint64_t flags, rest[10]; } arguments = {CLONE_NEWUSER, {0}};
    arguments.rest[3] = SIGCHLD;
    long child = syscall(435, &arguments, sizeof arguments);
    if (child == 0) _exit(0);
    return ok(child);
}
static int p_int80(void) {
#ifdef __x86_64__
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(310), "b"(CLONE_NEWUSER) : "memory", "r8", "r9", "r10", "r11");
    return result < 0 ? (int)-result : 0;
#else
    return ENOSYS;
#endif
}
static int p_x32(void) { return ok(syscall(0x40000000 | SYS_unshare, CLONE_NEWUSER)); }
static int p_mount(void) { return ok(mount("none", to.out, "tmpfs", 0, NULL)); }
static int p_fsopen(void) { return ok(syscall(430, "tmpfs", 0)); }
static int p_open_tree(void) { return ok(syscall(428, AT_FDCWD, "/", 1)); }
static int p_remount_rw(void) {
    int code = ok(mount(NULL, to.in, NULL, MS_REMOUNT | MS_BIND, NULL));
    if (code && unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) code = ok(mount(NULL, to.in, NULL, MS_REMOUNT | MS_BIND, NULL));
    return code;
}
static int p_umount(void) {
    const char *masks[] = {"/proc/pid", "/proc", "/dev/null", "/xt/in", to.out};
    for (unsigned i = 0; i < 5; i++) if (umount2(masks[i], MNT_DETACH) == 0) return 0;
    return errno;
}
static int p_chroot(void) { return ok(chroot("/")); }
static int p_pivot(void) { return ok(syscall(SYS_pivot_root, ".", ".")); }
static int p_setns(void) {
    int fd = open("/proc/1/ns/mnt", O_RDONLY);
    if (fd < 0) fd = open("/proc/self/ns/user", O_RDONLY);
    return fd < 0 ? errno : ok(setns(fd, 0));
}
static int attach(int pid) { int code = ok(ptrace(PTRACE_SEIZE, pid, 0, 0)); if (!code) ptrace(PTRACE_DETACH, pid, 0, 0); return code; }
static int p_ptrace(void) {
    int code = first_of(attach(to.victim), attach(to.supervisor));
    return first_of(code, first_of(attach(getppid()), attach(1)));
}
static int p_traceme(void) { return ok(ptrace(PTRACE_TRACEME, 0, 0, 0)); }
static int p_vm_readv(void) {
    char byte;
    struct iovec local = {&byte, 1}, remote = {(void *)&to, 1};
    int code = ok(process_vm_readv(to.victim, &local, 1, &remote, 1, 0));
    if (code != EFAULT && code) code = ok(process_vm_readv(1, &local, 1, &remote, 1, 0));
    return code == EFAULT ? 0 : code;
}
static int p_vm_writev(void) {
    char byte = 0;
    struct iovec local = {&byte, 1}, remote = {(void *)8, 1};
    int code = ok(process_vm_writev(to.victim, &local, 1, &remote, 1, 0));
    return code == EFAULT ? 0 : code;
}
static int p_pidfd_getfd(void) {
    int fd = syscall(434, to.victim, 0);
    if (fd < 0) fd = syscall(434, 1, 0);
    return fd < 0 ? errno : ok(syscall(438, fd, 0, 0));
}
static int p_kcmp(void) { return ok(syscall(SYS_kcmp, getpid(), to.victim, 0, 0, 0)); }
static int p_signal(void) { return first_of(ok(kill(to.supervisor, 0)), ok(kill(to.victim, 0))); }
static int p_stop(void) { int code = ok(kill(to.victim, SIGSTOP)); kill(to.victim, SIGCONT); return code; }
static int p_signal_by_fd(void) {
    // SIGIO through the ownership of a descriptor.
    int fd[2];
    return pipe(fd) < 0 ? errno : ok(fcntl(fd[0], F_SETOWN, to.victim));
}
static int p_io_uring(void) { char params[120] = {0}; return ok(syscall(425, 4, params)); }
static int p_keyring(void) { return ok(syscall(SYS_add_key, "user", "xt-hostile", "x", 1, -4)); }
static int p_keyctl(void) { return ok(syscall(SYS_keyctl, 0, -4, 1)); }
static int p_bpf(void) {
    struct { uint32_t type, key, value, entries, flags, rest[20]; } map = {2, 4, 4, 1, 0, {0}};
    return ok(syscall(SYS_bpf, 0, &map, sizeof map));
}
static int p_perf(void) {
    struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE, .size = sizeof event, .exclude_kernel = 1};
    return ok(syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
}
static int p_userfaultfd(void) { return ok(syscall(SYS_userfaultfd, O_CLOEXEC | 1)); }
static int p_exec_out(void) { return runs_copy(to.out); }
static int p_exec_tmp(void) { return runs_copy("/tmp"); }
static int p_exec_shm(void) { return runs_copy("/dev/shm"); }
static int p_exec_input(void) { char *argv[] = {"data", "exit42", NULL}; return ran(join(to.in, "program"), argv); }
static int p_exec_memfd(void) {
    char path[64];
    char *argv[] = {"copy", "exit42", NULL};
    int fd = syscall(SYS_memfd_create, "x", 0);
    if (fd < 0) return errno;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return copies(path) ?: ran(path, argv);
}
static int p_loader_out(void) {
    // The loader runs what it can read and map, whatever its mode says.
    const char *path = join(to.out, "loaded");
    char *argv[] = {"ld", (char *)path, "exit42", NULL};
    int code = copies(path) ?: (chmod(path, 0600), ran("/lib64/ld-linux-x86-64.so.2", argv));
    unlink(path);
    return code;
}
static int maps_executable(int later) {
    const char *path = join(to.out, "mapped");
    int code = copies(path), fd = open(path, O_RDONLY);
    if (code || fd < 0) return code ?: errno;
    void *at = mmap(NULL, 4096, later ? PROT_READ : PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    code = at == MAP_FAILED ? errno : later ? ok(mprotect(at, 4096, PROT_READ | PROT_EXEC)) : 0;
    unlink(path);
    return code;
}
static int p_mmap_exec_out(void) { return maps_executable(0); }
static int p_mprotect_exec_out(void) { return maps_executable(1); }
static int p_shell(void) { char *argv[] = {"sh", "-c", "exit 42", NULL}; return first_of(ran("/bin/sh", argv), ran("/bin/bash", argv)); }
static int p_modify_ldt(void) {
#ifdef SYS_modify_ldt
    char entry[64];
    return ok(syscall(SYS_modify_ldt, 0, entry, sizeof entry));
#else
    return ENOSYS;
#endif
}
static int p_clock_settime(void) { struct timespec now; clock_gettime(CLOCK_REALTIME, &now); return ok(clock_settime(CLOCK_REALTIME, &now)); }
static int p_sethostname(void) { return ok(sethostname("hostile", 7)); }
static int p_core_pattern(void) { return opens("/proc/sys/kernel/core_pattern", O_WRONLY); }
static int p_sysrq(void) { return opens("/proc/sysrq-trigger", O_WRONLY); }
static int p_cgroup_escape(void) { return first_of(opens("/sys/fs/cgroup/cgroup.procs", O_WRONLY), opens("/sys/fs/cgroup/memory/release_agent", O_WRONLY)); }
static int p_oom_adj(void) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY);
    return fd < 0 ? errno : write(fd, "-1000", 5) == 5 ? 0 : errno;
}
static int p_priority(void) {
    struct sched_param first = {1};
    return first_of(ok(sched_setscheduler(0, SCHED_FIFO, &first)), ok(setpriority(PRIO_PROCESS, 0, -10)));
}
static int p_rlimit_raise(void) { struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY}; return ok(setrlimit(RLIMIT_NOFILE, &all)); }
static int p_prlimit_other(void) { struct rlimit one = {1, 1}; return ok(prlimit(to.victim, RLIMIT_NICE, &one, NULL)); }
static int p_caps(void) {
    struct { uint32_t version; int pid; } head = {0x20080522, 0};
    struct { uint32_t effective, permitted, inheritable; } sets[2] = {{0}};
    if (syscall(SYS_capget, &head, sets) < 0) return errno;
    return sets[0].effective | sets[1].effective | sets[0].permitted | sets[1].permitted ? 0 : EPERM;
}
static int p_setuid0(void) { return first_of(ok(setuid(0)), ok(setgid(0))); }
static int p_fanotify(void) { return ok(syscall(SYS_fanotify_init, 0x200, 0)); }
static int p_personality(void) { return ok(syscall(SYS_personality, 0x0040000)); }
static int p_seccomp(void) { uint32_t action = 0x7fff0000; return ok(syscall(SYS_seccomp, 2, 0, &action)); }
static int p_landlock(void) { return ok(syscall(444, NULL, 0, 1)); }
static int p_reboot(void) { return ok(syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL)); }
static int p_pdeathsig(void) { return ok(prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)); }
static int p_subreaper(void) { return ok(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)); }
static int p_terminal(void) { char c = 'x'; int fd = open("/dev/tty", O_RDWR); return fd < 0 ? errno : ok(ioctl(fd, TIOCSTI, &c)); }
static int p_new_call(void) { return ok(syscall(467, AT_FDCWD, "/", 1, NULL, 0)); }

const struct attempt powers[] = {
    {"p_suid_binary", p_suid_binary}, {"p_nnp", p_nnp}, {"p_userns", p_userns}, {"p_clone_ns", p_clone_ns},
    {"p_clone3_ns", p_clone3_ns}, {"p_int80", p_int80}, {"p_x32", p_x32}, {"p_mount", p_mount}, {"p_fsopen", p_fsopen},
    {"p_open_tree", p_open_tree}, {"p_remount_rw", p_remount_rw}, {"p_umount", p_umount}, {"p_chroot", p_chroot},
    {"p_pivot", p_pivot}, {"p_setns", p_setns}, {"p_ptrace", p_ptrace}, {"p_traceme", p_traceme},
    {"p_vm_readv", p_vm_readv}, {"p_vm_writev", p_vm_writev}, {"p_pidfd_getfd", p_pidfd_getfd}, {"p_kcmp", p_kcmp},
    {"p_signal", p_signal}, {"p_stop", p_stop}, {"p_signal_by_fd", p_signal_by_fd}, {"p_io_uring", p_io_uring},
    {"p_keyring", p_keyring}, {"p_keyctl", p_keyctl}, {"p_bpf", p_bpf}, {"p_perf", p_perf},
    {"p_userfaultfd", p_userfaultfd}, {"p_exec_out", p_exec_out}, {"p_exec_tmp", p_exec_tmp},
    {"p_exec_shm", p_exec_shm}, {"p_exec_input", p_exec_input}, {"p_exec_memfd", p_exec_memfd},
    {"p_loader_out", p_loader_out}, {"p_mmap_exec_out", p_mmap_exec_out},
    {"p_mprotect_exec_out", p_mprotect_exec_out}, {"p_shell", p_shell}, {"p_modify_ldt", p_modify_ldt},
    {"p_clock_settime", p_clock_settime}, {"p_sethostname", p_sethostname}, {"p_core_pattern", p_core_pattern},
    {"p_sysrq", p_sysrq}, {"p_cgroup_escape", p_cgroup_escape}, {"p_oom_adj", p_oom_adj}, {"p_priority", p_priority},
    {"p_rlimit_raise", p_rlimit_raise}, {"p_prlimit_other", p_prlimit_other}, {"p_caps", p_caps},
    {"p_setuid0", p_setuid0}, {"p_fanotify", p_fanotify}, {"p_personality", p_personality}, {"p_seccomp", p_seccomp},
    {"p_landlock", p_landlock}, {"p_reboot", p_reboot}, {"p_pdeathsig", p_pdeathsig}, {"p_subreaper", p_subreaper},
    {"p_terminal", p_terminal}, {"p_new_call", p_new_call},
    {NULL, NULL},
};
