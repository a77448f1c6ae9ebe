/* Calls a second through the C library; dev/experiments/capi_calls.py starts it. Prints `NAME CALLS
 * SECONDS` for each kind. */

#define _POSIX_C_SOURCE 200809L

#include <eyas.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void check(int failed, const char *what)
{
    if (!failed)
        return;
    fprintf(stderr, "%s: %s\n", what, eyas_error_message());
    exit(1);
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Reads of one block each at random places: of the file of the cluster, or of the local one. */
static void reads(eyas_reader *reader, int local, uint64_t size, unsigned long calls)
{
    char block[BLOCK];
    uint64_t state = 1, offset;
    unsigned long i;
    size_t count;
    double began = now();

    for (i = 0; i < calls; i++) {
        offset = next_random(&state) % (size / BLOCK) * BLOCK;
        if (reader)
            check(eyas_read(reader, offset, block, BLOCK, &count) || count != BLOCK, "eyas_read");
        else
            check(pread(local, block, BLOCK, (off_t)offset) != BLOCK, "pread");
    }
    printf("%s %lu %f\n", reader ? "read" : "pread", calls, now() - began);
}

/* Submits one job of many tasks. */
static void submit(eyas_client *client, unsigned long tasks)
{
    const char *words[] = {"true", "{}"}, *item;
    char number[24];
    eyas_task *task;
    eyas_job *job;
    eyas_job_info info;
    uint32_t id;
    unsigned long i;
    double began = now();

    check(eyas_task_open(words, 2, &task), "task");
    for (i = 0; i < tasks; i++) {
        sprintf(number, "%lu", i);
        item = number;
        check(eyas_task_add_item(task, &item, 1), "item");
    }
    check(eyas_job_open("many", &job) || eyas_job_add(job, task), "job");
    check(eyas_job_submit(client, job, &id), "submit");
    printf("submit %lu %f\n", tasks, now() - began);
    check(eyas_job_cancel(client, id), "cancel");
    check(eyas_job_wait(client, id, 60000, &info, sizeof info), "wait");
    eyas_job_close(job);
    eyas_task_close(task);
}

int main(int argc, char **argv)
{
    eyas_client *client;
    eyas_reader *reader;
    eyas_file_info info;
    unsigned long calls, i;
    double began;
    int local, round;

    if (argc != 6)
        return 2;
    calls = strtoul(argv[3], NULL, 10);
    check(eyas_connect(NULL, &client), "connect");
    check(eyas_open(client, argv[1], &reader), "open");
    check(eyas_reader_info(reader, &info, sizeof info), "info");
    check((local = open(argv[2], O_RDONLY)) < 0, "the local file");
    for (round = 0; round < atoi(argv[5]); round++) {
        reads(NULL, local, info.size_bytes, calls);
        reads(reader, local, info.size_bytes, calls);
        began = now();
        for (i = 0; i < calls / 100; i++)
            check(eyas_stat(client, argv[1], &info, sizeof info), "stat");
        printf("stat %lu %f\n", calls / 100, now() - began);
        submit(client, strtoul(argv[4], NULL, 10));
    }
    close(local);
    eyas_reader_close(reader);
    eyas_client_close(client);
    return 0;
}
