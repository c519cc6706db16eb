// Reading what was not admitted, changing inputs, and leaving outputs that are not plain files.
#include "hostile.h"
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

static int reads(const char *path) {
    char byte;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    int code = read(fd, &byte, 1) == 1 ? 0 : (errno ? errno : ENODATA);
    close(fd);
    return code;
}
static int proc(int pid, const char *name, int flags) {
    char path[4096];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return opens(path, flags);
}
static int any_proc(const char *name, int flags) {
    int code = proc(to.supervisor, name, flags);
    code = first_of(code, proc(to.victim, name, flags));
    if (getppid() != 1) code = first_of(code, proc(1, name, flags));
    return getpid() == 1 ? code : first_of(code, proc(1, name, flags));
}
static int r_ssh(void) { return reads(to.secret); }
static int r_dotdot(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/../../../../../../../../../../..%s", to.in, to.secret);
    return reads(path);
}
static int r_shadow(void) { return reads("/etc/shadow"); }
static int r_passwd(void) { return reads("/etc/passwd"); }
static int r_store_unadmitted(void) { return reads(to.unadmitted); }
static int r_stat_oracle(void) { struct stat s; return ok(stat(to.unadmitted, &s)); }
static int r_list_home(void) { DIR *d = opendir(to.home); if (!d) return errno; closedir(d); return 0; }
static int r_env_secret(void) { return getenv("XT_TEST_SECRET") ? 0 : ENOENT; }
static int r_proc_mem(void) { return any_proc("mem", O_RDWR); }
static int r_proc_environ(void) { return any_proc("environ", O_RDONLY); }
static int r_proc_maps(void) { return any_proc("maps", O_RDONLY); }
static int r_proc_root(void) {
    char name[4096];
    snprintf(name, sizeof name, "root%s", to.secret);
    int code = any_proc(name, O_RDONLY);
    snprintf(name, sizeof name, "/proc/self/root%s", to.secret);
    return first_of(code, opens(name, O_RDONLY));
}
static int r_proc_cwd(void) { return any_proc("cwd", O_RDONLY | O_DIRECTORY); }
static int r_fd_leak(void) { char byte; return pread(to.leaked, &byte, 1, 0) == 1 ? 0 : errno; }
static int r_open_by_handle(void) {
    struct { struct file_handle head; char data[128]; } handle = {{128, 0}, {0}};
    int mount;
    if (syscall(SYS_name_to_handle_at, AT_FDCWD, "/", &handle, &mount, 0) < 0) return errno;
    int root = open("/", O_RDONLY | O_CLOEXEC);
    return ok(syscall(SYS_open_by_handle_at, root, &handle, O_RDONLY));
}
static int r_dmesg(void) { char text[64]; return ok(syscall(SYS_syslog, 3, text, sizeof text)); }
static int r_kcore(void) { return reads("/proc/kcore"); }
static int r_raw_disk(void) { return first_of(reads("/dev/vda"), reads("/dev/sda")); }
static int r_dev_mem(void) { return reads("/dev/mem"); }
static int r_boot_id(void) { return reads("/proc/sys/kernel/random/boot_id"); }
static int r_mountinfo(void) {
    char text[65536];
    int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    ssize_t size = read(fd, text, sizeof text - 1);
    text[size > 0 ? size : 0] = 0;
    // Where on the host the outputs or the home lie.
    return strstr(text, "/etc/") || strstr(text, "/sys/") ? 0 : ENOENT;
}
static int r_stdin_reopen(void) {
    struct stat s;
    if (fstat(0, &s) == 0 && S_ISCHR(s.st_mode) && s.st_rdev == makedev(1, 3)) return ENXIO;
    return opens("/proc/self/fd/0", O_RDWR);
}
static int r_sys(void) { return reads("/sys/class/dmi/id/product_name") == 0 ? 0 : opens("/sys/kernel", O_RDONLY); }

static int w_open(void) { return opens(input(), O_WRONLY); }
static int w_truncate(void) { return ok(truncate(input(), 0)); }
static int w_append(void) { return opens(input(), O_WRONLY | O_APPEND); }
static int w_create(void) { return writes(join(to.in, "planted")); }
static int w_mkdir(void) { return ok(mkdir(join(to.in, "folder"), 0700)); }
static int w_rename(void) { return ok(rename(input(), join(to.in, "moved"))) ?: ok(rename(join(to.in, "moved"), input())); }
static int w_xrename(void) { return ok(rename(input(), join(to.out, "stolen"))) ?: ok(rename(join(to.out, "stolen"), input())); }
static int w_symlink(void) {
    unlink(join(to.out, "link"));
    if (symlink(input(), join(to.out, "link")) < 0) return errno;
    return opens(join(to.out, "link"), O_WRONLY);
}
static int w_opath_procfd(void) {
    char path[64];
    int fd = open(input(), O_PATH);
    if (fd < 0) return errno;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return opens(path, O_WRONLY);
}
static int w_chmod(void) { return ok(chmod(input(), 0644)); }
static int w_utimens(void) { struct timespec t[2] = {{1, 0}, {1, 0}}; return ok(utimensat(AT_FDCWD, input(), t, 0)); }
static int w_setxattr(void) { return ok(setxattr(input(), "user.x", "1", 1, 0)); }
static int w_chown(void) { return ok(chown(input(), getuid(), getgid())); }
static int w_own_exe(void) { return first_of(ok(chmod(to.exe, 0755)), opens(to.exe, O_WRONLY)); }
static int w_system_dirs(void) {
    const char *folders[] = {"/", "/usr", "/etc", "/var", "/lib", "/xt", "/xt/bin", "/proc", "/dev"};
    for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++)
        if (writes(join(folders[i], "planted")) == 0) return 0;
    return EROFS;
}
static int w_tmp(void) { int code = writes("/tmp/xt-hostile-planted"); unlink("/tmp/xt-hostile-planted"); return code; }
static int w_host_home(void) { return writes(join(to.home, "planted")); }
static int w_flock(void) { int fd = open(input(), O_RDONLY); return fd < 0 ? errno : ok(flock(fd, LOCK_EX | LOCK_NB)); }
static int w_lock(void) {
    struct flock lock = {.l_type = F_RDLCK};
    int fd = open(input(), O_RDONLY);
    return fd < 0 ? errno : ok(fcntl(fd, F_SETLK, &lock));
}
static int w_lease(void) { int fd = open(input(), O_RDONLY); return fd < 0 ? errno : ok(fcntl(fd, F_SETLEASE, F_RDLCK)); }
static int w_inotify(void) {
    int fd = (int)syscall(SYS_inotify_init1, O_CLOEXEC);
    return fd < 0 ? errno : ok(syscall(SYS_inotify_add_watch, fd, to.in, 0xfff));
}
static int w_mmap_shared(void) {
    int fd = open(input(), O_RDWR);
    if (fd < 0) return errno;
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? errno : 0;
}
static int w_hardlink(void) { return ok(link(input(), join(to.out, "twin"))); }
static int w_atime(void) {
    struct stat before, after;
    if (stat(input(), &before) < 0) return errno;
    int code = reads(input());
    if (code || stat(input(), &after) < 0) return code ?: errno;
    return before.st_atim.tv_sec == after.st_atim.tv_sec ? EROFS : 0;
}
static int w_unlink(void) { return ok(unlink(input())); }

static int o_dir_swap(void) {
    char other[4096];
    snprintf(other, sizeof other, "%s.moved", to.out);
    if (rename(to.out, other) < 0) return errno;
    rename(other, to.out);
    return 0;
}
static int o_dir_rmdir(void) {
    if (rmdir(to.out) < 0) return errno;
    mkdir(to.out, 0777);
    return chmod(to.out, 0777);
}
static int o_hardlink_secret(void) { return ok(link(to.secret, join(to.out, "hard"))); }
static int o_symlink(void) { return ok(symlink(to.secret, join(to.out, "symbolic"))); }
static int o_fifo(void) { return ok(mkfifo(join(to.out, "model.safetensors"), 0600)); }
static int o_socket(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return errno;
    snprintf(name.sun_path, sizeof name.sun_path, "s");
    return chdir(to.out) < 0 ? errno : ok(bind(fd, (void *)&name, sizeof name));
}
static int o_socket_mknod(void) { return ok(mknod(join(to.out, "sock"), S_IFSOCK | 0600, 0)); }
static int o_chrdev(void) { return ok(mknod(join(to.out, "chr"), S_IFCHR | 0666, makedev(1, 3))); }
static int o_blkdev(void) { return ok(mknod(join(to.out, "blk"), S_IFBLK | 0666, makedev(254, 0))); }
static int o_setuid(void) {
    int fd = open(join(to.out, "setuid"), O_WRONLY | O_CREAT, 0700);
    return fd < 0 ? errno : ok(fchmod(fd, 04755));
}
static int o_setuid_creat(void) {
    int fd = open(join(to.out, "setuid2"), O_WRONLY | O_CREAT, 06755);
    struct stat s;
    if (fd < 0) return errno;
    fstat(fd, &s);
    return s.st_mode & 06000 ? 0 : EPERM;
}
static int o_setgid_mkdir(void) {
    struct stat s;
    if (mkdir(join(to.out, "setgid"), 02700) < 0) return errno;
    stat(join(to.out, "setgid"), &s);
    return s.st_mode & 02000 ? 0 : (chmod(join(to.out, "setgid"), 02700) < 0 ? errno : 0);
}
static int o_xattr(void) {
    writes(join(to.out, "attributed"));
    return ok(setxattr(join(to.out, "attributed"), "user.x", "1", 1, 0));
}
static int o_immutable(void) {
    int flags = FS_IMMUTABLE_FL, fd = open(join(to.out, "immutable"), O_RDWR | O_CREAT, 0600);
    return fd < 0 ? errno : ok(ioctl(fd, FS_IOC_SETFLAGS, &flags));
}
static int o_nodump(void) {
    int flags = FS_NODUMP_FL, fd = open(join(to.out, "nodump"), O_RDWR | O_CREAT, 0600);
    return fd < 0 ? errno : ok(ioctl(fd, FS_IOC_SETFLAGS, &flags));
}
static int o_sparse(void) {
    signal(SIGXFSZ, SIG_IGN);
    int fd = open(join(to.out, "sparse"), O_RDWR | O_CREAT, 0600);
    int code = fd < 0 ? errno : ok(ftruncate(fd, 1L << 40));
    unlink(join(to.out, "sparse"));
    return code;
}
static int o_fill(void) {
    // Four times the limit, in files each below it.
    static char block[1 << 20];
    char name[64];
    int code = 0, made = 0;
    signal(SIGXFSZ, SIG_IGN);
    for (; made < 8 && !code; made++) {
        snprintf(name, sizeof name, "fill%d", made);
        int fd = open(join(to.out, name), O_RDWR | O_CREAT, 0600);
        for (int i = 0; i < 8 && !code; i++) code = fd < 0 || write(fd, block, sizeof block) < (long)sizeof block ? (errno ? errno : ENOSPC) : 0;
        if (fd >= 0) close(fd);
    }
    while (made--) snprintf(name, sizeof name, "fill%d", made), unlink(join(to.out, name));
    return code;
}
static int o_many(void) {
    char name[64];
    int code = 0, made = 0;
    for (; made < 2000 && !code; made++) {
        snprintf(name, sizeof name, "many%d", made);
        code = writes(join(to.out, name));
    }
    while (made--) snprintf(name, sizeof name, "many%d", made), unlink(join(to.out, name));
    return code;
}
// The collector's job: these are made here and must not be taken.
static int o_nonutf8(void) { return writes(join(to.out, "bad\xff\n\x1b[31mname")); }
static int o_deep(void) {
    if (chdir(to.out) < 0) return errno;
    for (int i = 0; i < 200; i++) if (mkdir("d", 0700) < 0 || chdir("d") < 0) return errno;
    return writes("deepest");
}
static int o_mode000(void) { return writes(join(to.out, "closed")) ?: ok(chmod(join(to.out, "closed"), 0)); }
static int o_dir000(void) { return ok(mkdir(join(to.out, "closed.d"), 0)); }

const struct attempt files[] = {
    {"r_ssh", r_ssh}, {"r_dotdot", r_dotdot}, {"r_shadow", r_shadow}, {"r_passwd", r_passwd},
    {"r_store_unadmitted", r_store_unadmitted}, {"r_stat_oracle", r_stat_oracle}, {"r_list_home", r_list_home},
    {"r_env_secret", r_env_secret}, {"r_proc_mem", r_proc_mem}, {"r_proc_environ", r_proc_environ},
    {"r_proc_maps", r_proc_maps}, {"r_proc_root", r_proc_root}, {"r_proc_cwd", r_proc_cwd}, {"r_fd_leak", r_fd_leak},
    {"r_open_by_handle", r_open_by_handle}, {"r_dmesg", r_dmesg}, {"r_kcore", r_kcore}, {"r_raw_disk", r_raw_disk},
    {"r_dev_mem", r_dev_mem}, {"r_boot_id", r_boot_id}, {"r_mountinfo", r_mountinfo},
    {"r_stdin_reopen", r_stdin_reopen}, {"r_sys", r_sys},
    {"w_atime", w_atime}, {"w_open", w_open}, {"w_append", w_append}, {"w_create", w_create}, {"w_mkdir", w_mkdir}, {"w_rename", w_rename},
    {"w_xrename", w_xrename}, {"w_symlink", w_symlink}, {"w_opath_procfd", w_opath_procfd}, {"w_chmod", w_chmod},
    {"w_utimens", w_utimens}, {"w_setxattr", w_setxattr}, {"w_chown", w_chown}, {"w_own_exe", w_own_exe},
    {"w_system_dirs", w_system_dirs}, {"w_tmp", w_tmp}, {"w_host_home", w_host_home}, {"w_flock", w_flock},
    {"w_lock", w_lock}, {"w_lease", w_lease}, {"w_inotify", w_inotify}, {"w_mmap_shared", w_mmap_shared},
    {"w_hardlink", w_hardlink}, {"w_truncate", w_truncate}, {"w_unlink", w_unlink},
    {"o_dir_swap", o_dir_swap}, {"o_dir_rmdir", o_dir_rmdir}, {"o_hardlink_secret", o_hardlink_secret}, {"o_symlink", o_symlink}, {"o_fifo", o_fifo},
    {"o_socket", o_socket}, {"o_socket_mknod", o_socket_mknod}, {"o_chrdev", o_chrdev}, {"o_blkdev", o_blkdev},
    {"o_setuid", o_setuid}, {"o_setuid_creat", o_setuid_creat}, {"o_setgid_mkdir", o_setgid_mkdir},
    {"o_xattr", o_xattr}, {"o_immutable", o_immutable}, {"o_nodump", o_nodump}, {"o_sparse", o_sparse},
    {"o_fill", o_fill}, {"o_many", o_many},
    {"o_nonutf8", o_nonutf8}, {"o_deep", o_deep}, {"o_mode000", o_mode000}, {"o_dir000", o_dir000},
    {NULL, NULL},
};
