// Runs a command in a world that grants less, as container engines and old kernels do: `deny namespaces COMMAND…`
// answers EPERM to new namespaces, `deny landlock COMMAND…` answers ENOSYS to landlock.
#include "hostile.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(errno) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (errno))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int deny(const char *what, char **command) {
    struct sock_filter namespaces[] = {
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 435, 4, 0), // clone3
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4),
        LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x7e020000, 0, 2),
        ANSWER(EPERM),
        ANSWER(ENOSYS),
        ALLOW,
    };
    struct sock_filter landlock[] = {
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 444, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 446, 1, 0),
        ANSWER(ENOSYS),
        ALLOW,
    };
    struct sock_fprog program = {sizeof namespaces / sizeof *namespaces, namespaces};
    if (!strcmp(what, "landlock")) program = (struct sock_fprog){sizeof landlock / sizeof *landlock, landlock};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0) {
        // Without root only with no new privileges.
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return 99;
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0) return 99;
    }
    execv(command[0], command);
    return 98;
}
