/* See decompose.h. */
#include "decompose.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char USAGE[] =
    "usage: %s --bytes BYTES --block BYTES [--processes N] [--first P --all N] [--contiguous]\n"
    "       [--shuffled] [--write] [--independent] FILE [the same file by another name]...\n";

static void refuse(const char *program) {
    fprintf(stderr, USAGE, program);
    exit(2);
}

struct asked read_command_line(int count, char **words) {
    struct asked asked = {.processes = 1};
    const struct option options[] = {
        {"bytes", required_argument, NULL, 'b'},  {"block", required_argument, NULL, 'g'},
        {"processes", required_argument, NULL, 'p'}, {"first", required_argument, NULL, 'f'},
        {"all", required_argument, NULL, 'a'},    {"contiguous", no_argument, NULL, 'c'},
        {"shuffled", no_argument, NULL, 's'},     {"write", no_argument, NULL, 'w'},
        {"independent", no_argument, NULL, 'i'},  {NULL, 0, NULL, 0},
    };
    for (int option; (option = getopt_long(count, words, "", options, NULL)) != -1;) {
        switch (option) {
        case 'b': asked.file_bytes = strtoull(optarg, NULL, 10); break;
        case 'g': asked.block_bytes = strtoull(optarg, NULL, 10); break;
        case 'p': asked.processes = atoi(optarg); break;
        case 'f': asked.first = atoi(optarg); break;
        case 'a': asked.all = atoi(optarg); break;
        case 'c': asked.is_contiguous = true; break;
        case 's': asked.is_shuffled = true; break;
        case 'w': asked.is_write = true; break;
        case 'i': asked.is_independent = true; break;
        default: refuse(words[0]);
        }
    }
    if (asked.all == 0)
        asked.all = asked.first + asked.processes;
    asked.files = words + optind;
    asked.file_count = count - optind;
    if (asked.file_count < 1 || asked.processes < 1 || asked.first < 0 ||
        asked.first + asked.processes > asked.all || asked.block_bytes == 0 ||
        asked.block_bytes % sizeof(uint64_t) != 0)
        refuse(words[0]);
    return asked;
}

const char *file_of(const struct asked *asked, int process) {
    return asked->files[process % asked->file_count];
}

struct share share_of(const struct asked *asked, int process) {
    uint64_t blocks = asked->file_bytes / asked->block_bytes, all = asked->all, number = process;
    if (asked->is_contiguous) {
        uint64_t first = number * blocks / all, end = (number + 1) * blocks / all;
        return (struct share){first, 1, end - first};
    }
    return (struct share){number, all, blocks > number ? (blocks - number - 1) / all + 1 : 0};
}

uint64_t block_at(const struct asked *asked, struct share share, uint64_t place) {
    /* A prime number larger than any count here: each place comes once. */
    if (asked->is_shuffled)
        place = place * 2654435761 % share.count;
    return share.first + share.step * place;
}

/* FNV-1a of the file's name without its folders. */
uint64_t salt_of(const char *file) {
    const char *slash = strrchr(file, '/');
    uint64_t salt = 0xcbf29ce484222325;
    for (const char *byte = slash ? slash + 1 : file; *byte; byte++)
        salt = (salt ^ (unsigned char)*byte) * 0x100000001b3;
    return salt;
}

/* One multiplication by an odd number: as fast as memory, and no two places of a file are alike. */
static uint64_t word_at(uint64_t offset, uint64_t salt) {
    return (offset ^ salt) * 0x9e3779b97f4a7c15;
}

void fill(uint64_t *words, size_t count, uint64_t offset, uint64_t salt) {
    for (size_t place = 0; place < count; place++)
        words[place] = word_at(offset + place * sizeof *words, salt);
}

uint64_t count_wrong(const uint64_t *words, size_t count, uint64_t offset, uint64_t salt) {
    uint64_t wrong = 0;
    for (size_t place = 0; place < count; place++)
        wrong += words[place] != word_at(offset + place * sizeof *words, salt);
    return wrong;
}

uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void count_call(struct result *result, uint64_t began_us, uint64_t bytes) {
    uint64_t waited_us = now_us() - began_us;
    result->bytes += bytes;
    result->calls++;
    result->waited_us += waited_us;
    if (waited_us > result->longest_us)
        result->longest_us = waited_us;
}

int report(const struct asked *asked, const struct result *results) {
    int code = 0;
    for (int place = 0; place < asked->processes; place++) {
        const struct result *result = &results[place];
        int process = asked->first + place;
        printf("{\"process\": %d, \"begin_us\": %" PRIu64 ", \"end_us\": %" PRIu64
               ", \"bytes\": %" PRIu64 ", \"calls\": %" PRIu64 ", \"longest_us\": %" PRIu64
               ", \"waited_us\": %" PRIu64 ", \"wrong_words\": %" PRIu64 "}\n",
               process, result->begin_us, result->end_us, result->bytes, result->calls,
               result->longest_us, result->waited_us, result->wrong_words);
        if (result->error != 0) {
            fprintf(stderr, "process %d: %s: %s\n", process, file_of(asked, process),
                    strerror(result->error));
            code = 1;
        }
        if (result->wrong_words != 0) {
            fprintf(stderr, "process %d: %s: %" PRIu64 " words are wrong\n", process,
                    file_of(asked, process), result->wrong_words);
            code = 1;
        }
    }
    return code;
}
