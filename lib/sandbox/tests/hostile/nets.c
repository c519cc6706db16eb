// Every way to a socket, and to someone who listens on the host.
#include "hostile.h"
#include <linux/if_alg.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>

static struct sockaddr_in local(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}
static int connects(int protocol, int port) {
    struct sockaddr_in at = local(port);
    int fd = socket(AF_INET, SOCK_STREAM, protocol);
    return fd < 0 ? errno : ok(connect(fd, (void *)&at, sizeof at));
}
static int opens_socket(int family, int kind, int protocol) { return ok(socket(family, kind, protocol)); }
static int n_tcp(void) { return connects(0, to.tcp); }
static int n_mptcp(void) { return connects(262, to.tcp); }
static int n_fastopen(void) {
    struct sockaddr_in at = local(to.tcp);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? errno : ok(sendto(fd, "x", 1, MSG_FASTOPEN, (void *)&at, sizeof at));
}
static int n_udp(void) {
    struct sockaddr_in at = local(to.udp);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return fd < 0 ? errno : ok(sendto(fd, "x", 1, 0, (void *)&at, sizeof at));
}
static int n_udp6(void) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    return fd < 0 ? errno : ok(sendto(fd, "x", 1, 0, (void *)&at, sizeof at));
}
static int n_dns(void) {
    struct sockaddr_in at = local(53);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return fd < 0 ? errno : ok(connect(fd, (void *)&at, sizeof at));
}
static int n_listen(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? errno : ok(listen(fd, 1));
}
static int unix_connects(int kind, const char *name, int hidden) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, kind, 0);
    if (fd < 0) return errno;
    snprintf(at.sun_path + hidden, sizeof at.sun_path - hidden, "%s", name);
    socklen_t size = offsetof(struct sockaddr_un, sun_path) + hidden + strlen(name) + !hidden;
    return ok(connect(fd, (void *)&at, size));
}
static int n_abstract(void) { return unix_connects(SOCK_STREAM, to.abstract, 1); }
static int n_unix_path(void) { return unix_connects(SOCK_STREAM, to.socket_path, 0); }
static int n_unix_input(void) { return unix_connects(SOCK_STREAM, join(to.in, "socket"), 0); }
static int n_raw(void) { return opens_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP); }
static int n_packet(void) { return opens_socket(AF_PACKET, SOCK_RAW, 0); }
static int n_ping(void) { return opens_socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP); }
static int n_sctp(void) { return opens_socket(AF_INET, SOCK_STREAM, 132); }
static int n_vsock(void) { return opens_socket(AF_VSOCK, SOCK_STREAM, 0); }
static int n_netlink(void) { return opens_socket(AF_NETLINK, SOCK_RAW, 0); }
static int n_alg(void) { return opens_socket(AF_ALG, SOCK_SEQPACKET, 0); }
static int n_xdp(void) { return opens_socket(44, SOCK_RAW, 0); }
static int n_unix(void) { return opens_socket(AF_UNIX, SOCK_DGRAM, 0); }
static int n_socketpair(void) { int pair[2]; return ok(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)); }

const struct attempt nets[] = {
    {"n_tcp", n_tcp}, {"n_mptcp", n_mptcp}, {"n_fastopen", n_fastopen}, {"n_udp", n_udp}, {"n_udp6", n_udp6},
    {"n_dns", n_dns}, {"n_listen", n_listen}, {"n_abstract", n_abstract}, {"n_unix_path", n_unix_path},
    {"n_unix_input", n_unix_input}, {"n_raw", n_raw}, {"n_packet", n_packet}, {"n_ping", n_ping}, {"n_sctp", n_sctp},
    {"n_vsock", n_vsock}, {"n_netlink", n_netlink}, {"n_alg", n_alg}, {"n_xdp", n_xdp}, {"n_unix", n_unix},
    {"n_socketpair", n_socketpair},
    {NULL, NULL},
};
