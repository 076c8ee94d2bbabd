/* The far end of the network benchmark. One process, bounded work, loopback only.
 *
 *   upstream ADDRESS PLAIN_PORT HTTP_PORT TLS_PORT CERT KEY SECRET
 *
 * PLAIN_PORT: raw TCP, an epoll thread for echoes, one for bulk. The first byte chooses the behaviour:
 *     'D'   stream bytes without end (download)
 *     'U'   read and discard (upload)
 *     else  echo every byte (the first one included)
 * HTTP_PORT (plain) and TLS_PORT (TLS): HTTP/1.1, a thread for each connection.
 *     POST or GET /x       200, 1,024-byte JSON body, Content-Length
 *     GET /sse?n=N&us=U    chunked text/event-stream, N events, one each U microseconds;
 *                          each event carries CLOCK_MONOTONIC nanoseconds
 * On TLS_PORT a request without "Authorization: SECRET" is answered 401.
 * Prints READY when it listens on all three.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const char *secret;
static SSL_CTX *ctx;

static int lsock(const char *address, int port) {
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = inet_addr(address);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(s, (void *)&a, sizeof a) || listen(s, 4096)) { perror("bind"); exit(1); }
    return s;
}
static long long now_ns(void) {
    struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* ---------------------------------------------------------------- plain */
static char mode_of[1 << 17];
static int bulk_ep;
/* Bulk connections have a thread of their own, so that an echo never waits for them here: what a
 * proxy adds to a round trip while it moves bulk data must not be hidden behind the upstream. */
static void *bulk_loop(void *u) {
    struct epoll_event evs[64];
    static char b[1 << 18];
    for (;;) {
        int n = epoll_wait(bulk_ep, evs, 64, -1);
        for (int i = 0; i < n; i++) {
            int fd = evs[i].data.fd, dead = 0;
            if (mode_of[fd] == 'D') {
                if (evs[i].events & EPOLLOUT)
                    if (send(fd, b, sizeof b, MSG_NOSIGNAL) < 0 && errno != EAGAIN) dead = 1;
                if (evs[i].events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) dead = 1;
            } else {
                ssize_t r = recv(fd, b, 4 << 20, MSG_TRUNC);
                if (r == 0 || (r < 0 && errno != EAGAIN)) dead = 1;
            }
            if (dead) close(fd);
        }
    }
    return u;
}
static void raw_loop(int ls) {
    int ep = epoll_create1(0), one = 1;
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = ls}, evs[512];
    fcntl(ls, F_SETFL, O_NONBLOCK);
    epoll_ctl(ep, EPOLL_CTL_ADD, ls, &ev);
    for (;;) {
        int n = epoll_wait(ep, evs, 512, -1);
        for (int i = 0; i < n; i++) {
            int fd = evs[i].data.fd;
            if (fd == ls) {
                for (;;) {
                    int c = accept4(ls, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
                    if (c < 0) break;
                    if (c >= (1 << 17)) { close(c); continue; }
                    setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    mode_of[c] = 0;
                    ev.events = EPOLLIN; ev.data.fd = c;
                    epoll_ctl(ep, EPOLL_CTL_ADD, c, &ev);
                }
                continue;
            }
            int dead = 0;
            {
                char b[4096];
                ssize_t r = recv(fd, b, sizeof b, 0);
                if (r == 0 || (r < 0 && errno != EAGAIN)) dead = 1;
                else if (r > 0) {
                    if (!mode_of[fd]) mode_of[fd] = b[0];
                    if (mode_of[fd] == 'D' || mode_of[fd] == 'U') {
                        ev.events = mode_of[fd] == 'D' ? EPOLLOUT | EPOLLRDHUP : EPOLLIN; ev.data.fd = fd;
                        epoll_ctl(ep, EPOLL_CTL_DEL, fd, 0);
                        epoll_ctl(bulk_ep, EPOLL_CTL_ADD, fd, &ev);
                    } else {
                        ssize_t o = 0;
                        while (o < r) {
                            ssize_t w = send(fd, b + o, r - o, MSG_NOSIGNAL);
                            if (w < 0) { if (errno == EAGAIN) continue; dead = 1; break; }
                            o += w;
                        }
                    }
                }
            }
            if (dead) close(fd);
        }
    }
}

/* ----------------------------------------------------------------- http */
struct conn { int fd; SSL *ssl; };
static int rd(struct conn *c, void *b, int n) { return c->ssl ? SSL_read(c->ssl, b, n) : recv(c->fd, b, n, 0); }
static int wr(struct conn *c, const void *b, int n) {
    if (c->ssl) return SSL_write(c->ssl, b, n);
    return send(c->fd, b, n, MSG_NOSIGNAL);
}
static void *http_conn(void *p) {
    struct conn *c = p;
    static __thread char buf[65536];
    int have = 0, one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (c->ssl && SSL_accept(c->ssl) != 1) goto out;
    for (;;) {
        char *end;
        buf[have] = 0;
        while (!(end = strstr(buf, "\r\n\r\n"))) {
            int r = rd(c, buf + have, sizeof buf - 1 - have);
            if (r <= 0) goto out;
            have += r; buf[have] = 0;
        }
        int hl = end + 4 - buf, cl = 0, authed = 0, closing = 0, chunked = 0;
        for (char *l = strstr(buf, "\r\n"); l && l < end; l = strstr(l + 2, "\r\n")) {
            char *h = l + 2;
            if (!strncasecmp(h, "content-length:", 15)) cl = atoi(h + 15);
            if (!strncasecmp(h, "transfer-encoding:", 18)) chunked = 1;
            if (!strncasecmp(h, "connection: close", 17)) closing = 1;
            if (!strncasecmp(h, "authorization: ", 15) && !strncmp(h + 15, secret, strlen(secret))) authed = 1;
        }
        char *path = strchr(buf, ' ');
        int sse = path && strstr(path, "/sse") && strstr(path, "/sse") < strstr(buf, "\r\n");
        int n = 200, us = 5000; char *q;
        if (sse && (q = strstr(path, "n="))) n = atoi(q + 2);
        if (sse && (q = strstr(path, "us="))) us = atoi(q + 3);
        if (chunked) { /* read to the last chunk */
            while (!strstr(buf + hl, "0\r\n\r\n")) {
                int r = rd(c, buf + have, sizeof buf - 1 - have);
                if (r <= 0) goto out;
                have += r; buf[have] = 0;
            }
            have = 0;
        } else {
            while (have < hl + cl) {
                int r = rd(c, buf + have, sizeof buf - 1 - have);
                if (r <= 0) goto out;
                have += r;
            }
            memmove(buf, buf + hl + cl, have - hl - cl);
            have -= hl + cl;
        }
        const char *cc = closing ? "Connection: close\r\n" : "";
        char out[4096];
        if (c->ssl && !authed) {
            int k = sprintf(out, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n%s\r\n", cc);
            if (wr(c, out, k) <= 0) goto out;
        } else if (sse) {
            int k = sprintf(out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n%s\r\n", cc);
            if (wr(c, out, k) <= 0) goto out;
            long long t = now_ns();
            for (int i = 0; i < n; i++) {
                t += us * 1000LL;
                struct timespec ts = {t / 1000000000LL, t % 1000000000LL};
                clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, 0);
                char e[256];
                int m = sprintf(e, "data: {\"t\":%020lld,\"delta\":\"token-%04d xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}\n\n", now_ns(), i);
                k = sprintf(out, "%x\r\n%s\r\n", m, e);
                if (wr(c, out, k) <= 0) goto out;
            }
            if (wr(c, "0\r\n\r\n", 5) <= 0) goto out;
        } else {
            int k = sprintf(out, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1024\r\n%s\r\n", cc);
            memset(out + k, 'x', 1024);
            if (wr(c, out, k + 1024) <= 0) goto out;
        }
        if (closing) { if (c->ssl) SSL_shutdown(c->ssl); goto out; }
    }
out:
    if (c->ssl) SSL_free(c->ssl);
    close(c->fd); free(c);
    return 0;
}
struct lst { int fd, tls; };
static void *http_accept(void *p) {
    struct lst *l = p;
    pthread_attr_t at; pthread_attr_init(&at);
    pthread_attr_setdetachstate(&at, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&at, 256 << 10);
    for (;;) {
        int fd = accept4(l->fd, 0, 0, SOCK_CLOEXEC);
        if (fd < 0) continue;
        struct conn *c = calloc(1, sizeof *c);
        c->fd = fd;
        if (l->tls) { c->ssl = SSL_new(ctx); SSL_set_fd(c->ssl, fd); }
        pthread_t t;
        if (pthread_create(&t, &at, http_conn, c)) { close(fd); free(c); }
    }
    return 0;
}
int main(int n, char **v) {
    if (n < 8) return 2;
    signal(SIGPIPE, SIG_IGN);
    struct rlimit rl; getrlimit(RLIMIT_NOFILE, &rl); rl.rlim_cur = rl.rlim_max; setrlimit(RLIMIT_NOFILE, &rl);
    secret = v[7];
    ctx = SSL_CTX_new(TLS_server_method());
    if (SSL_CTX_use_certificate_chain_file(ctx, v[5]) != 1 || SSL_CTX_use_PrivateKey_file(ctx, v[6], SSL_FILETYPE_PEM) != 1) { fprintf(stderr, "cert\n"); return 1; }
    static struct lst a, b;
    a.fd = lsock(v[1], atoi(v[3])); b.fd = lsock(v[1], atoi(v[4])); b.tls = 1;
    pthread_t t;
    pthread_create(&t, 0, http_accept, &a);
    pthread_create(&t, 0, http_accept, &b);
    bulk_ep = epoll_create1(EPOLL_CLOEXEC);
    pthread_create(&t, 0, bulk_loop, 0);
    int raw = lsock(v[1], atoi(v[2]));
    printf("READY\n"); fflush(stdout);
    raw_loop(raw);
}
