// A hostile trainer. Started with what it needs to know as key=value, it makes every attempt in a process of its own
// and prints for each `NAME OUTCOME`, where 0 means that the attempt did what it must not do.
#include "hostile.h"

struct context to;

static void make(const struct attempt *attempt) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        errno = 0;
        _exit(attempt->make());
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) < 0) {
        printf("%s %d\n", attempt->name, 255);
        return;
    }
    printf("%s %d\n", attempt->name, WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status));
}

static const char *value(int argc, char **argv, const char *key) {
    size_t length = strlen(key);
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], key, length) && argv[i][length] == '=') return argv[i] + length + 1;
    return "";
}

int left(int remove_it);
int deny(const char *what, char **command);

// Ways to live and end that are watched from outside.
static int live(const char *how) {
    if (!strcmp(how, "exit42")) return 42;
    if (!strcmp(how, "euid0")) return geteuid() == 0 ? 42 : 1;
    if (!strcmp(how, "hang")) {
        for (int i = 1; i < 65; i++) signal(i, SIG_IGN);
        puts("hanging");
        fflush(stdout);
        for (;;) pause();
    }
    if (!strcmp(how, "wait")) {
        puts("waiting");
        fflush(stdout);
        for (;;) pause();
    }
    if (!strcmp(how, "daemon")) {
        if (fork() == 0) {
            setsid();
            if (fork() == 0) {
                for (int i = 0; i < 3; i++) close(i);
                for (int i = 1; i < 65; i++) signal(i, SIG_IGN);
                sleep(300);
            }
            _exit(0);
        }
        wait(NULL);
        return 0;
    }
    if (!strcmp(how, "daemon_and_wait")) { if (fork() == 0) { setsid(); fork(); } for (;;) pause(); }
    if (!strcmp(how, "children")) {
        for (int i = 0; i < 2000; i++) { if (fork() == 0) { if (fork() == 0) _exit(0); _exit(0); } wait(NULL); }
        return 0;
    }
    if (!strcmp(how, "flood")) {
        static char block[1 << 16];
        memset(block, 'x', sizeof block);
        for (int i = 0; i < 480; i++) if (write(1, block, sizeof block) < 0) return 1;
        return 0;
    }
    if (!strcmp(how, "segv")) raise(SIGSEGV);
    if (!strcmp(how, "refused")) { for (int i = 0; i < 100; i++) socket(AF_INET, SOCK_STREAM, i % 3); return 0; }
    if (!strcmp(how, "processors")) {
        cpu_set_t allowed;
        sched_getaffinity(0, sizeof allowed, &allowed);
        for (int i = 0; i < CPU_SETSIZE; i++) if (CPU_ISSET(i, &allowed)) printf("%d ", i);
        return 0;
    }
    if (!strcmp(how, "left")) return left(0);
    if (!strcmp(how, "clean")) return left(1);
    return 3;
}

int main(int argc, char **argv) {
    if (argc == 2) return live(argv[1]);
    if (argc > 3 && !strcmp(argv[1], "deny")) return deny(argv[2], argv + 3);
    to = (struct context){value(argc, argv, "in"), value(argc, argv, "out"), value(argc, argv, "secret"),
        value(argc, argv, "home"), value(argc, argv, "unadmitted"), value(argc, argv, "exe"), value(argc, argv, "suid"),
        value(argc, argv, "socket_path"), value(argc, argv, "abstract"), atoi(value(argc, argv, "tcp")),
        atoi(value(argc, argv, "udp")), atoi(value(argc, argv, "victim")), atoi(value(argc, argv, "supervisor")),
        atoi(value(argc, argv, "leaked"))};
    const struct attempt *all[] = {nets, powers, loads, files};
    for (int i = 0; i < 4; i++)
        for (const struct attempt *attempt = all[i]; attempt->name; attempt++) make(attempt);
    puts("end 1");
    return 0;
}
