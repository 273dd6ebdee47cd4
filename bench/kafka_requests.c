/* Sends prepared requests over many connections and counts the answers: the least a client can cost.
 *
 * Each connection keeps IN_FLIGHT requests under way and sends the next when an answer comes. Requests and answers are
 * frames of a four-byte length and that many bytes, as Kafka's are. REQUESTS holds whole frames; ANSWERS holds for each
 * of them a frame whose body is what the answer must begin with. Connection i takes frame i modulo their number.
 * Prints one line of JSON. Built by kafka_tools.py; loopback only.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define FRAMES_MAX 1024
#define IN_FLIGHT_MAX 64
#define INPUT_BYTES 16384
#define BUCKETS 1000000 /* of ten microseconds: up to ten seconds */
#define SILENCE_MS 10000

struct frame {
    unsigned char *data;
    size_t size; /* with the length */
};

struct connection {
    int socket;
    const struct frame *request, *answer;
    double sent[IN_FLIGHT_MAX];
    unsigned head, under_way;
    size_t filled;
    unsigned char input[INPUT_BYTES];
};

static unsigned histogram[BUCKETS];

static void fail(const char *what) {
    fprintf(stderr, "%s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static size_t length_at(const unsigned char *data) {
    return (size_t)data[0] << 24 | data[1] << 16 | data[2] << 8 | data[3];
}

static int load(const char *path, struct frame *frames) {
    FILE *file = fopen(path, "rb");
    unsigned char prefix[4];
    int count = 0;
    if (!file) fail(path);
    while (count < FRAMES_MAX && fread(prefix, 1, 4, file) == 4) {
        size_t size = length_at(prefix);
        unsigned char *data = malloc(size + 4);
        if (!data) fail("no memory");
        memcpy(data, prefix, 4);
        if (fread(data + 4, 1, size, file) != size) fail("a frame is cut short");
        frames[count++] = (struct frame){data, size + 4};
    }
    fclose(file);
    if (!count) fail("no frames");
    return count;
}

static void ask(struct connection *it, double at) {
    errno = 0;
    if (send(it->socket, it->request->data, it->request->size, MSG_DONTWAIT | MSG_NOSIGNAL) !=
        (ssize_t)it->request->size)
        fail("the broker does not take a request");
    it->sent[(it->head + it->under_way++) % IN_FLIGHT_MAX] = at;
}

/* Take in what has come; give how many answers that makes. */
static unsigned answers(struct connection *it, int counted) {
    unsigned count = 0;
    size_t used = 0;
    ssize_t got = recv(it->socket, it->input + it->filled, INPUT_BYTES - it->filled, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return 0;
    errno = got < 0 ? errno : 0;
    if (got <= 0) fail("the broker closed a connection");
    it->filled += (size_t)got;
    while (it->filled - used >= 4) {
        size_t size = length_at(it->input + used) + 4;
        if (size > INPUT_BYTES) fail("an answer is too long");
        if (it->filled - used < size) break;
        if (size < it->answer->size || memcmp(it->input + used + 4, it->answer->data + 4, it->answer->size - 4))
            fail("an answer is not as expected: an error code, perhaps");
        if (!it->under_way) fail("an answer to nothing");
        double at = now();
        if (counted) {
            size_t bucket = (size_t)((at - it->sent[it->head]) * 1e5);
            histogram[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
        }
        it->head = (it->head + 1) % IN_FLIGHT_MAX;
        it->under_way--;
        used += size;
        count++;
    }
    memmove(it->input, it->input + used, it->filled - used);
    it->filled -= used;
    return count;
}

/* In milliseconds. */
static double percentile(double share, unsigned long total) {
    unsigned long seen = 0;
    for (size_t bucket = 0; bucket < BUCKETS; bucket++)
        if ((seen += histogram[bucket]) >= share * total) return (bucket + 0.5) / 1e2;
    return BUCKETS / 1e2;
}

static struct connection *open_all(int port, int count, int poll, const struct frame *requests,
                                   const struct frame *expected, int frames) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    struct connection *all = calloc((size_t)count, sizeof *all);
    int yes = 1;
    if (!all) fail("no memory");
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        all[i].socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (all[i].socket < 0 || connect(all[i].socket, (struct sockaddr *)&address, sizeof address)) fail("connect");
        setsockopt(all[i].socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        all[i].request = &requests[i % frames];
        all[i].answer = &expected[i % frames];
        if (epoll_ctl(poll, EPOLL_CTL_ADD, all[i].socket, &event)) fail("epoll_ctl");
    }
    return all;
}

int main(int argc, char **argv) {
    static struct frame requests[FRAMES_MAX], expected[FRAMES_MAX];
    struct epoll_event events[256];
    if (argc != 8) fail("usage: requests PORT REQUESTS ANSWERS CONNECTIONS IN_FLIGHT WARM_MS RUN_MS");
    int frames = load(argv[2], requests), connections = atoi(argv[4]), in_flight = atoi(argv[5]);
    if (load(argv[3], expected) != frames) fail("REQUESTS and ANSWERS differ in number");
    if (connections < 1 || in_flight < 1 || in_flight > IN_FLIGHT_MAX) fail("CONNECTIONS or IN_FLIGHT is out of range");
    int poll = epoll_create1(EPOLL_CLOEXEC);
    struct connection *all = open_all(atoi(argv[1]), connections, poll, requests, expected, frames);
    double counted_from = now() + atof(argv[6]) / 1e3, until = counted_from + atof(argv[7]) / 1e3, at = now();
    unsigned long total = 0;
    for (int i = 0; i < connections; i++)
        for (int j = 0; j < in_flight; j++) ask(&all[i], at);
    while ((at = now()) < until) {
        int ready = epoll_wait(poll, events, 256, SILENCE_MS);
        errno = 0;
        if (ready <= 0) fail("no answer for ten seconds");
        at = now();
        for (int i = 0; i < ready; i++) {
            struct connection *it = events[i].data.ptr;
            unsigned count = answers(it, at >= counted_from);
            if (at >= counted_from) total += count;
            for (double sent = now(); count; count--) ask(it, sent);
        }
    }
    printf("{\"requests\": %lu, \"seconds\": %.3f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"cpu_seconds\": %.2f}\n", total,
           at - counted_from, percentile(0.5, total), percentile(0.99, total), (double)clock() / CLOCKS_PER_SEC);
    return 0;
}
