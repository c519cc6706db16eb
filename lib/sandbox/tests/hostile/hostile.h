// What every attempt knows: the worst case, in which the hostile program was told where everything is.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

struct context {
    const char *in, *out, *secret, *home, *unadmitted, *exe, *suid, *socket_path, *abstract;
    int tcp, udp, victim, supervisor, leaked;
};
extern struct context to;

// An attempt returns 0 when it did what it must not do, otherwise the error number.
struct attempt {
    const char *name;
    int (*make)(void);
};
extern const struct attempt files[], powers[], nets[], loads[];

// The error number if `result` is negative, else success.
static inline int ok(long result) { return result < 0 ? (errno ? errno : EIO) : 0; }
static inline const char *join(const char *folder, const char *name) {
    static char path[8][4096];
    static int next;
    char *at = path[next++ % 8];
    snprintf(at, 4096, "%s/%s", folder, name);
    return at;
}
static inline const char *input(void) { return join(to.in, "data"); }
static inline int opens(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    close(fd);
    return 0;
}
static inline int writes(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    if (fd < 0) return errno;
    int code = write(fd, "x", 1) == 1 ? 0 : errno;
    close(fd);
    return code;
}
static inline int first_of(int a, int b) { return a == 0 ? 0 : b; }
