/* N processes decompose one file by plain calls: each reads, or writes, its blocks one after the
 * other. It stands for a program that knows nothing of parallel I/O, and of which nothing is
 * changed. Several of it, with --first and --all, are one application on several nodes. */
#include "decompose.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* All of a block; errno, which is ENODATA where the file ends. */
static int move(bool is_write, int file, char *block, size_t bytes, uint64_t offset) {
    while (bytes > 0) {
        ssize_t moved =
            is_write ? pwrite(file, block, bytes, offset) : pread(file, block, bytes, offset);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return moved < 0 ? errno : ENODATA;
        block += moved, offset += moved, bytes -= moved;
    }
    return 0;
}

static int work(const struct asked *asked, int file, int process, struct result *result) {
    struct share share = share_of(asked, process);
    uint64_t salt = salt_of(file_of(asked, process));
    size_t bytes = asked->block_bytes, count = bytes / sizeof(uint64_t);
    uint64_t *block = malloc(bytes);
    if (block == NULL)
        return errno;
    for (uint64_t place = 0; place < share.count; place++) {
        uint64_t number = block_at(asked, share, place);
        if (asked->is_write)
            fill(block, count, number * bytes, salt);
        uint64_t began_us = now_us();
        int error = move(asked->is_write, file, (char *)block, bytes, number * bytes);
        if (error != 0)
            return error;
        count_call(result, began_us, bytes);
        if (!asked->is_write)
            result->wrong_words += count_wrong(block, count, number * bytes, salt);
    }
    free(block);
    return close(file) == 0 ? 0 : errno;
}

/* Opens its file, waits until the gate is closed at its other end, works. */
static void process(const struct asked *asked, int number, int gate, struct result *result) {
    int file = open(file_of(asked, number), asked->is_write ? O_WRONLY | O_CREAT : O_RDONLY, 0644);
    int error = file < 0 ? errno : 0;
    char nothing;
    while (read(gate, &nothing, 1) < 0 && errno == EINTR) {}
    result->begin_us = now_us();
    result->error = error != 0 ? error : work(asked, file, number, result);
    result->end_us = now_us();
}

int main(int count, char **words) {
    struct asked asked = read_command_line(count, words);
    size_t bytes = asked.processes * sizeof(struct result);
    struct result *results =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int gate[2];
    if (results == MAP_FAILED || pipe(gate) < 0)
        return 1;
    for (int place = 0; place < asked.processes; place++) {
        results[place].error = ECHILD; /* until it says otherwise */
        pid_t child = fork();
        if (child == 0) {
            close(gate[1]);
            process(&asked, asked.first + place, gate[0], &results[place]);
            _exit(0);
        }
    }
    close(gate[1]);
    while (wait(NULL) > 0 || errno == EINTR) {}
    return report(&asked, results);
}
