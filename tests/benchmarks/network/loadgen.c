/* The client side of the network benchmark: one thread, epoll, bounded in time.
 *
 *   loadgen MODE HOST:PORT TARGET CONC SECONDS FORM MAX
 *
 * HOST:PORT  the proxy, an IPv4 address; "direct:HOST:PORT" for no proxy between
 * TARGET     host:port for the CONNECT line (or the URI and Host for http, sse)
 * MODE       connect   new CONNECT, a first flight that comes back, close; again and again
 *            down, up  bulk through CONC open tunnels
 *            ping      100 bytes each way through CONC open tunnels, one outstanding in each
 *            idle      opens CONC tunnels and holds them until a line comes on stdin
 *            http      POST of 1,024 bytes, 1,024 bytes back; keep-alive where the peer allows it
 *            sse       CONC event streams of 200 events, 5 ms apart (SECONDS ignored)
 * FORM       http, sse: abs (http://TARGET/p) or origin (/p)
 *            connect: a file with the first flight, "-" for one byte
 * MAX        connect stops after so many (ports in TIME_WAIT run out otherwise), 0 for no limit
 *
 * down, up, ping and idle print READY and how many tunnels failed when all are open, and wait for a line
 * on stdin, so that the caller can read the proxy's CPU clock in between. The last line is a JSON object.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum st { CONNECTING, HEAD, FIRST, OPEN, DEAD };
struct slot {
    int fd; enum st st; int got, need; long long t0;
    char buf[8192]; int have;
    int hdr_done, chunked, closing; long body_left;
    int done, reused;
};
static int ep, conc, direct;
static struct sockaddr_in dst;
static char req[4096]; static int reqlen;
static const char *mode;
static struct slot *S;
static long ops, errs, bytes, reconns, coalesced, events;
static double *lat; static long nlat, caplat;
static char big[1 << 18];
static char first[8192] = "E"; static int firstlen = 1;   /* what goes first through a tunnel */
static int deny;   /* answers that are not a 2xx */

static long long now_ns(void) {
    struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void addlat(long long ns) {
    if (nlat == caplat) { caplat = caplat ? caplat * 2 : 65536; lat = realloc(lat, caplat * sizeof *lat); }
    lat[nlat++] = ns / 1000.0;
}
static int cmp(const void *a, const void *b) { double x = *(double *)a, y = *(double *)b; return x < y ? -1 : x > y; }
static double pct(double p) {
    if (!nlat) return -1;
    long i = (long)(p * (nlat - 1) + 0.5); return lat[i];
}
static void dial(struct slot *s) {
    int one = 1;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0) { perror("socket"); exit(1); }
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    s->st = CONNECTING; s->have = 0; s->got = 0; s->hdr_done = 0; s->reused = 0;
    s->t0 = now_ns();
    if (connect(s->fd, (void *)&dst, sizeof dst) && errno != EINPROGRESS) { errs++; }
    struct epoll_event ev = {.events = EPOLLOUT, .data.ptr = s};
    epoll_ctl(ep, EPOLL_CTL_ADD, s->fd, &ev);
}
static void want(struct slot *s, unsigned e) {
    struct epoll_event ev = {.events = e, .data.ptr = s};
    epoll_ctl(ep, EPOLL_CTL_MOD, s->fd, &ev);
}
static void hang(struct slot *s) { close(s->fd); s->fd = -1; s->st = DEAD; }

static void opened(struct slot *s) {       /* the tunnel is there */
    if (!strcmp(mode, "down")) first[0] = 'D';
    if (!strcmp(mode, "up")) first[0] = 'U';
    s->st = FIRST; s->need = firstlen;
    if (send(s->fd, first, firstlen, MSG_NOSIGNAL) != firstlen) { errs++; hang(s); return; }
    if (first[0] == 'D' || first[0] == 'U') { s->st = OPEN; want(s, 0); }
}
/* connect part, common to the tunnel modes; returns 1 once the tunnel is open */
static int setup(struct slot *s, unsigned e) {
    if (s->st == CONNECTING) {
        int er = 0; socklen_t l = sizeof er;
        getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &er, &l);
        if (er) { errs++; hang(s); return 0; }
        if (direct) { want(s, EPOLLIN); opened(s); return s->st == OPEN; }
        if (send(s->fd, req, reqlen, MSG_NOSIGNAL) != reqlen) { errs++; hang(s); return 0; }
        s->st = HEAD; want(s, EPOLLIN);
        return 0;
    }
    if (s->st == HEAD) {
        ssize_t r = recv(s->fd, s->buf + s->have, sizeof s->buf - 1 - s->have, 0);
        if (r <= 0) { if (r < 0 && errno == EAGAIN) return 0; errs++; hang(s); return 0; }
        s->have += r; s->buf[s->have] = 0;
        if (!strstr(s->buf, "\r\n\r\n")) return 0;
        if (strncmp(s->buf + 8, " 200", 4)) { deny++; errs++; hang(s); return 0; }
        opened(s);
        return s->st == OPEN;
    }
    if (s->st == FIRST) {
        ssize_t r = recv(s->fd, s->buf, s->need, 0);
        if (r < 0 && errno == EAGAIN) return 0;
        if (r <= 0) { errs++; hang(s); return 0; }
        s->need -= r;
        if (s->need) return 0;
        s->st = OPEN;
        return 1;
    }
    return 0;
}
static void report(double secs) {
    qsort(lat, nlat, sizeof *lat, cmp);
    struct rusage u; getrusage(RUSAGE_SELF, &u);
    printf("{\"mode\":\"%s\",\"conc\":%d,\"secs\":%.4f,\"ops\":%ld,\"bytes\":%ld,\"errs\":%ld,\"deny\":%d,"
           "\"reconns\":%ld,\"events\":%ld,\"late\":%ld,\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,\"n\":%ld}\n",
           mode, conc, secs, ops, bytes, errs, deny, reconns, events, coalesced,
           pct(.5), pct(.9), pct(.99), nlat ? lat[nlat - 1] : -1.0, nlat);
    fflush(stdout);
}
static void wait_go(void) {
    char c; printf("READY %ld\n", errs); fflush(stdout);
    while (read(0, &c, 1) == 1 && c != '\n') ;
}
/* open all CONC tunnels, at most 64 under way at a time */
static int open_all(void) {
    int next = 0, open = 0, busy = 0, dead = 0; struct epoll_event evs[256];
    long long t0 = now_ns();
    while (open + dead < conc) {
        while (busy < 64 && next < conc) { dial(&S[next++]); busy++; }
        int n = epoll_wait(ep, evs, 256, 1000);
        if (now_ns() - t0 > 60000000000LL) { fprintf(stderr, "open_all: timed out at %d\n", open); return open; }
        for (int i = 0; i < n; i++) {
            struct slot *s = evs[i].data.ptr;
            if (s->st == OPEN) continue;
            if (setup(s, evs[i].events)) { open++; busy--; want(s, 0); }
            else if (s->st == DEAD) { dead++; busy--; }
        }
    }
    return open;
}
/* ------------------------------------------------------------------ http */
static void http_send(struct slot *s) {
    s->have = 0; s->hdr_done = 0; s->chunked = 0; s->closing = 0; s->body_left = -1; s->got = 0;
    if (s->reused) s->t0 = now_ns();
    if (send(s->fd, req, reqlen, MSG_NOSIGNAL) != reqlen) { errs++; hang(s); }
}
static void http_finish(struct slot *s) {
    ops++; addlat(now_ns() - s->t0);
    if (s->closing) { hang(s); return; }
    s->reused = 1;
    http_send(s);
}
static void scan_events(struct slot *s) {   /* counts the events in s->buf[0..have) and drops them */
    char *p = s->buf, *q; long long t = now_ns();
    s->buf[s->have] = 0;
    while ((q = strstr(p, "\"t\":"))) {
        if (q + 4 + 20 + 30 > s->buf + s->have) break;
        long long d = t - atoll(q + 4);
        addlat(d); events++;
        if (d > 4000000) coalesced++;
        p = q + 24;
    }
    if (strstr(p, "0\r\n\r\n")) s->done = 1;
    int left = s->have - (p - s->buf); if (left > 400) { p += left - 400; left = 400; }
    memmove(s->buf, p, left); s->have = left;
}
static void http_in(struct slot *s) {
    int sse = !strcmp(mode, "sse");
    for (;;) {
        ssize_t r = recv(s->fd, s->buf + s->have, sizeof s->buf - 1 - s->have, 0);
        if (r < 0 && errno == EAGAIN) return;
        if (r <= 0) {
            if (s->hdr_done && !sse && s->body_left <= 0 && s->got) { http_finish(s); hang(s); return; }
            if (sse && s->hdr_done && !s->chunked) { s->done = 1; hang(s); return; }
            if (s->reused && !s->have && !s->hdr_done) { hang(s); return; }   /* closed between requests: dial again */
            if (!(sse && s->done)) errs++;
            hang(s); return;
        }
        s->have += r;
        if (!s->hdr_done) {
            s->buf[s->have] = 0;
            char *e = strstr(s->buf, "\r\n\r\n");
            if (!e) continue;
            if (strncmp(s->buf + 8, " 200", 4)) { if (!deny) fprintf(stderr, "%.*s\n", (int)(e - s->buf), s->buf); deny++; errs++; hang(s); return; }
            *e = 0;
            for (char *l = strstr(s->buf, "\r\n"); l; l = strstr(l + 2, "\r\n")) {
                if (!strncasecmp(l + 2, "content-length:", 15)) s->body_left = atol(l + 17);
                if (!strncasecmp(l + 2, "transfer-encoding: chunked", 26)) s->chunked = 1;
                if (!strncasecmp(l + 2, "connection: close", 17)) s->closing = 1;
                if (!strncasecmp(l + 2, "proxy-connection: close", 23)) s->closing = 1;
            }
            s->hdr_done = 1;
            int h = e + 4 - s->buf;
            memmove(s->buf, s->buf + h, s->have - h); s->have -= h;
            if (sse) { scan_events(s); if (s->done) { hang(s); return; } continue; }
            s->got = s->have; s->have = 0;
        } else if (sse) { scan_events(s); if (s->done) { hang(s); return; } continue; }
        else { s->got += r; s->have = 0; }
        if (s->body_left >= 0 && s->got >= s->body_left) { http_finish(s); return; }
        if (s->chunked && s->got >= 1024 + 5 + 5) { http_finish(s); return; }   /* 1,024 bytes re-framed by the peer */
    }
}
static void run_http(double secs) {
    struct epoll_event evs[256]; long long t0 = now_ns(), end = t0 + (long long)(secs * 1e9);
    for (int i = 0; i < conc; i++) dial(&S[i]);
    while (now_ns() < end) {
        int n = epoll_wait(ep, evs, 256, 50);
        for (int i = 0; i < n; i++) {
            struct slot *s = evs[i].data.ptr;
            if (s->st == DEAD) continue;
            if (s->st == CONNECTING) {
                int er = 0; socklen_t l = sizeof er;
                getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &er, &l);
                if (er) { errs++; hang(s); } else { s->st = OPEN; want(s, EPOLLIN); http_send(s); }
            } else http_in(s);
            if (s->st == DEAD) { if (errs > 2000) goto stop; reconns++; dial(&S[s - S]); }
        }
    }
stop:
    report((now_ns() - t0) / 1e9);
}
static void run_sse(void) {
    struct epoll_event evs[256]; long long t0 = now_ns(); int left = conc;
    for (int i = 0; i < conc; i++) dial(&S[i]);
    while (left && now_ns() - t0 < 15000000000LL) {
        int n = epoll_wait(ep, evs, 256, 50);
        for (int i = 0; i < n; i++) {
            struct slot *s = evs[i].data.ptr;
            if (s->st == DEAD) continue;
            if (s->st == CONNECTING) { s->st = OPEN; want(s, EPOLLIN); http_send(s); }
            else http_in(s);
            if (s->st == DEAD) { left--; ops++; }
        }
    }
    report((now_ns() - t0) / 1e9);
}
int main(int n, char **v) {
    if (n < 8) return 2;
    signal(SIGPIPE, SIG_IGN);
    struct rlimit rl; getrlimit(RLIMIT_NOFILE, &rl); rl.rlim_cur = rl.rlim_max; setrlimit(RLIMIT_NOFILE, &rl);
    mode = v[1];
    direct = !strncmp(v[2], "direct:", 7);
    char *at = v[2] + (direct ? 7 : 0), *colon = strchr(at, ':');
    if (!colon) return 2;
    *colon = 0;
    dst.sin_family = AF_INET; dst.sin_addr.s_addr = inet_addr(at);
    dst.sin_port = htons(atoi(colon + 1));
    const char *target = v[3], *form = v[6];
    conc = atoi(v[4]); double secs = atof(v[5]); long max = atol(v[7]); if (!max) max = 1L << 60;
    ep = epoll_create1(EPOLL_CLOEXEC);
    S = calloc(conc, sizeof *S);
    if (!strcmp(mode, "http") || !strcmp(mode, "sse")) {
        char body[1025]; memset(body, 'y', 1024); body[1024] = 0;
        const char *pre = !strcmp(form, "abs") ? "http://" : "";
        const char *h = !strcmp(form, "origin") ? "" : target;
        if (!strcmp(mode, "sse")) reqlen = sprintf(req, "GET %s%s/sse?n=200&us=5000 HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nUser-Agent: bench\r\n\r\n", pre, h, target);
        else reqlen = sprintf(req, "POST %s%s/v1/messages HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: */*\r\nContent-Type: application/json\r\nContent-Length: 1024\r\n\r\n%s", pre, h, target, body);
        if (!strcmp(mode, "sse")) run_sse(); else run_http(secs);
        return 0;
    }
    reqlen = sprintf(req, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\n\r\n", target, target);
    struct epoll_event evs[512];
    if (!strcmp(mode, "connect")) {
        if (strcmp(form, "-")) {
            int f = open(form, O_RDONLY | O_CLOEXEC); firstlen = read(f, first, sizeof first); close(f);
            if (firstlen <= 0) { perror(form); return 1; }
        }
        long long t0 = now_ns(), end = t0 + (long long)(secs * 1e9), t;
        for (int i = 0; i < conc; i++) dial(&S[i]);
        while ((t = now_ns()) < end && errs < 2000 && ops < max) {
            int k = epoll_wait(ep, evs, 512, 50);
            for (int i = 0; i < k; i++) {
                struct slot *s = evs[i].data.ptr;
                if (setup(s, evs[i].events)) { ops++; addlat(now_ns() - s->t0); hang(s); }
                if (s->st == DEAD) dial(s);
            }
        }
        report((now_ns() - t0) / 1e9);
        return 0;
    }
    int open = open_all();
    if (!strcmp(mode, "idle")) {
        wait_go();
        ops = open; report(0);
        return 0;
    }
    int down = !strcmp(mode, "down"), up = !strcmp(mode, "up");
    wait_go();
    long long t0 = now_ns(), end = t0 + (long long)(secs * 1e9);
    memset(big, 'z', sizeof big);
    for (int i = 0; i < conc; i++) if (S[i].st == OPEN) {
        want(&S[i], up ? EPOLLOUT : EPOLLIN);
        S[i].need = 100; S[i].t0 = now_ns();
        if (!down && !up) send(S[i].fd, big, 100, MSG_NOSIGNAL);
    }
    while (now_ns() < end) {
        int k = epoll_wait(ep, evs, 512, 50);
        for (int i = 0; i < k; i++) {
            struct slot *s = evs[i].data.ptr;
            if (s->st != OPEN) continue;
            if (down) {
                ssize_t r = recv(s->fd, big, 4 << 20, MSG_TRUNC);
                if (r > 0) bytes += r; else if (r == 0 || errno != EAGAIN) { errs++; hang(s); }
            } else if (up) {
                ssize_t r = send(s->fd, big, sizeof big, MSG_NOSIGNAL);
                if (r > 0) bytes += r; else if (errno != EAGAIN) { errs++; hang(s); }
            } else {
                ssize_t r = recv(s->fd, big, s->need, 0);
                if (r <= 0) { if (r < 0 && errno == EAGAIN) continue; errs++; hang(s); continue; }
                s->need -= r;
                if (!s->need) {
                    ops++; addlat(now_ns() - s->t0);
                    s->need = 100; s->t0 = now_ns();
                    send(s->fd, big, 100, MSG_NOSIGNAL);
                }
            }
        }
    }
    report((now_ns() - t0) / 1e9);
    return 0;
}
