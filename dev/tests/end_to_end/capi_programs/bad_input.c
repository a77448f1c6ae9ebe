/* What programs do wrong, and what the library answers. Prints `fine` if each answer is the
 * expected one. */

#define _POSIX_C_SOURCE 200809L

#include <eyas.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPECT(call, expected) expect(call, expected, #call, __LINE__)

static void expect(eyas_status status, eyas_status expected, const char *call, int line)
{
    if (status == expected)
        return;
    fprintf(stderr, "line %d: %s is %s instead of %s: %s\n", line, call, eyas_status_name(status),
            eyas_status_name(expected), eyas_error_message());
    exit(1);
}

static void says(const char *word)
{
    if (strstr(eyas_error_message(), word))
        return;
    fprintf(stderr, "`%s` is not in: %s\n", word, eyas_error_message());
    exit(1);
}

static eyas_reader *shared;

/* Reads the shared file at many places. */
static void *read_much(void *unused)
{
    char line[4];
    size_t count;
    int i;

    (void)unused;
    for (i = 0; i < 200; i++) {
        uint64_t offset = (uint64_t)(i % 50) * 4;
        EXPECT(eyas_read(shared, offset, line, sizeof line, &count), EYAS_STATUS_OK);
        if (count != 4 || memcmp(line, "abc\n", 4))
            abort();
        EXPECT(eyas_read(NULL, 0, line, sizeof line, &count), EYAS_STATUS_BAD_HANDLE);
        says("eyas_reader is NULL");
    }
    return NULL;
}

static void connections(eyas_client **client)
{
    EXPECT(eyas_connect("no such cluster!", client), EYAS_STATUS_INVALID);
    EXPECT(eyas_connect("absent", client), EYAS_STATUS_NOT_FOUND);
    says("absent");
    EXPECT(eyas_connect("\xff\xfe", client), EYAS_STATUS_INVALID);
    says("not UTF-8");
    EXPECT(eyas_connect_access("/no/such/file", client), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_connect_access(NULL, client), EYAS_STATUS_INVALID);
    EXPECT(eyas_connect(NULL, NULL), EYAS_STATUS_INVALID);
    EXPECT(eyas_client_close(NULL), EYAS_STATUS_BAD_HANDLE);
    EXPECT(eyas_client_set_timeout(NULL, 1), EYAS_STATUS_BAD_HANDLE);
    EXPECT(eyas_connect(NULL, client), EYAS_STATUS_OK);
}

static void files(eyas_client *client)
{
    eyas_write_options options = {0};
    eyas_file_info info;
    eyas_writer *writer;
    eyas_reader *reader;
    eyas_listing *listing;
    pthread_t threads[4];
    const char *name;
    char line[8];
    size_t count, i;

    EXPECT(eyas_stat(client, "/absent", &info, sizeof info), EYAS_STATUS_NOT_FOUND);
    says("/absent");
    EXPECT(eyas_stat(client, "relative", &info, sizeof info), EYAS_STATUS_INVALID);
    EXPECT(eyas_stat(client, "/a/../b", &info, sizeof info), EYAS_STATUS_INVALID);
    EXPECT(eyas_stat(client, "/\xc3\x28", &info, sizeof info), EYAS_STATUS_INVALID);
    EXPECT(eyas_stat(client, NULL, &info, sizeof info), EYAS_STATUS_INVALID);
    EXPECT(eyas_open(client, "/absent", &reader), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_append(client, "/absent", &writer), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_remove(client, "/absent"), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_rename(client, "/absent", "/other"), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_list(client, "relative", 0, &listing), EYAS_STATUS_INVALID);
    options.format = "no such format";
    EXPECT(eyas_create(client, "/a", &options, sizeof options, &writer), EYAS_STATUS_INVALID);
    says("no such format");
    EXPECT(eyas_create(client, "/a", &options, 3, &writer), EYAS_STATUS_INVALID);

    /* What is discarded never appears. */
    EXPECT(eyas_create(client, "/a", NULL, 0, &writer), EYAS_STATUS_OK);
    EXPECT(eyas_write(writer, NULL, 5), EYAS_STATUS_INVALID);
    EXPECT(eyas_write(writer, NULL, 0), EYAS_STATUS_OK);
    EXPECT(eyas_write(writer, "abc", 3), EYAS_STATUS_OK);
    EXPECT(eyas_writer_discard(writer), EYAS_STATUS_OK);
    EXPECT(eyas_write(writer, "abc", 3), EYAS_STATUS_BAD_HANDLE);
    EXPECT(eyas_writer_close(writer), EYAS_STATUS_BAD_HANDLE);
    EXPECT(eyas_stat(client, "/a", &info, sizeof info), EYAS_STATUS_NOT_FOUND);

    EXPECT(eyas_create(client, "/a", NULL, 0, &writer), EYAS_STATUS_OK);
    for (i = 0; i < 50; i++)
        EXPECT(eyas_write(writer, "abc\n", 4), EYAS_STATUS_OK);
    EXPECT(eyas_writer_close(writer), EYAS_STATUS_OK);
    EXPECT(eyas_create(client, "/a", NULL, 0, &writer), EYAS_STATUS_EXISTS);
    EXPECT(eyas_stat(client, "/a", &info, 3), EYAS_STATUS_INVALID);
    EXPECT(eyas_stat(client, "/a", NULL, sizeof info), EYAS_STATUS_INVALID);

    /* A reader keeps its version; the place of the result, and only this, is written to. */
    EXPECT(eyas_open(client, "/a", &shared), EYAS_STATUS_OK);
    EXPECT(eyas_read(shared, 1000, line, sizeof line, &count), EYAS_STATUS_OK);
    if (count)
        abort();
    EXPECT(eyas_read(shared, UINT64_MAX, line, sizeof line, &count), EYAS_STATUS_OK);
    EXPECT(eyas_read(shared, 198, line, sizeof line, &count), EYAS_STATUS_OK);
    if (count != 2)
        abort();
    EXPECT(eyas_read(shared, 0, NULL, 4, &count), EYAS_STATUS_INVALID);
    EXPECT(eyas_read(shared, 0, NULL, 0, &count), EYAS_STATUS_OK);
    EXPECT(eyas_read((eyas_reader *)(void *)client, 0, line, 1, &count), EYAS_STATUS_BAD_HANDLE);
    says("not an eyas_reader");
    for (i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, read_much, NULL))
            abort();
    for (i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    options.format = NULL;
    options.replaces = 1;
    EXPECT(eyas_create(client, "/a", &options, sizeof options, &writer), EYAS_STATUS_OK);
    EXPECT(eyas_write(writer, "new", 3), EYAS_STATUS_OK);
    EXPECT(eyas_writer_close(writer), EYAS_STATUS_OK);
    EXPECT(eyas_stat(client, "/a", &info, sizeof info), EYAS_STATUS_OK);
    if (info.size_bytes != 3)
        abort();
    EXPECT(eyas_reader_info(shared, &info, sizeof info), EYAS_STATUS_OK);
    if (info.size_bytes != 200)
        abort();
    EXPECT(eyas_make_folder(client, "/folder/deep"), EYAS_STATUS_OK);
    EXPECT(eyas_make_folder(client, "/folder"), EYAS_STATUS_EXISTS);
    EXPECT(eyas_remove_folder(client, "/folder"), EYAS_STATUS_NOT_EMPTY);
    EXPECT(eyas_remove_folder(client, "/a"), EYAS_STATUS_NOT_FOLDER);
    EXPECT(eyas_open(client, "/folder", &reader), EYAS_STATUS_IS_FOLDER);
    EXPECT(eyas_make_folder(client, "/a/b"), EYAS_STATUS_NOT_FOLDER);
    EXPECT(eyas_stat(client, "/folder", &info, sizeof info), EYAS_STATUS_OK);
    if (info.kind != EYAS_FILE_KIND_FOLDER || info.uid != getuid())
        abort();
    EXPECT(eyas_remove_folder(client, "/folder/deep"), EYAS_STATUS_OK);
    EXPECT(eyas_remove_folder(client, "/folder"), EYAS_STATUS_OK);
    EXPECT(eyas_list(client, "/", 1, &listing), EYAS_STATUS_OK);
    /* A wrong place for the result costs no entry. */
    EXPECT(eyas_listing_next(listing, &name, &info, 3), EYAS_STATUS_INVALID);
    EXPECT(eyas_listing_next(listing, &name, NULL, sizeof info), EYAS_STATUS_INVALID);
    EXPECT(eyas_listing_next(listing, &name, &info, sizeof info), EYAS_STATUS_OK);
    EXPECT(eyas_listing_next(listing, &name, &info, sizeof info), EYAS_STATUS_END);
    EXPECT(eyas_listing_close(listing), EYAS_STATUS_OK);
    EXPECT(eyas_listing_close(listing), EYAS_STATUS_BAD_HANDLE);
    says("closed");
}

static void jobs(eyas_client *client)
{
    const char *sleep[] = {"sleep", "1000"}, *nothing[] = {NULL};
    const char *text = "[[task]]\ncommand = ['sh', '-c', 'echo out; echo err >&2; exit 3']\n";
    eyas_job_info info;
    eyas_task_result result;
    eyas_results *results;
    eyas_task *task;
    eyas_job *job;
    uint32_t id;
    char *explanation;

    EXPECT(eyas_submit_text(client, "[[task", 6, &id), EYAS_STATUS_INVALID);
    says("job.toml");
    EXPECT(eyas_submit_text(client, "", 0, &id), EYAS_STATUS_INVALID);
    EXPECT(eyas_submit_text(client, "\xff", 1, &id), EYAS_STATUS_INVALID);
    EXPECT(eyas_job_status(client, 99, &info, sizeof info), EYAS_STATUS_REFUSED);
    says("99");
    EXPECT(eyas_job_cancel(client, 99), EYAS_STATUS_REFUSED);
    EXPECT(eyas_job_open("bad", &job), EYAS_STATUS_OK);
    EXPECT(eyas_job_submit(client, job, &id), EYAS_STATUS_INVALID);
    says("no task");
    EXPECT(eyas_task_open(nothing, 1, &task), EYAS_STATUS_INVALID);
    EXPECT(eyas_task_open(NULL, 1, &task), EYAS_STATUS_INVALID);
    EXPECT(eyas_task_open(sleep, 2, &task), EYAS_STATUS_OK);
    EXPECT(eyas_task_add_item(task, NULL, 0), EYAS_STATUS_INVALID);
    EXPECT(eyas_task_set_cpus(task, -1), EYAS_STATUS_OK);
    EXPECT(eyas_job_add(job, task), EYAS_STATUS_OK);
    EXPECT(eyas_job_submit(client, job, &id), EYAS_STATUS_INVALID);
    says("-1");
    EXPECT(eyas_job_close(job), EYAS_STATUS_OK);

    /* A wait ends with its timeout; the job goes on until it is cancelled. */
    EXPECT(eyas_task_set_cpus(task, 1), EYAS_STATUS_OK);
    EXPECT(eyas_job_open("good", &job), EYAS_STATUS_OK);
    EXPECT(eyas_job_add(job, task), EYAS_STATUS_OK);
    EXPECT(eyas_job_submit(client, job, &id), EYAS_STATUS_OK);
    EXPECT(eyas_job_wait(client, id, 100, NULL, 0), EYAS_STATUS_TIMED_OUT);
    says("100 ms");
    EXPECT(eyas_job_status(client, id, &info, sizeof info), EYAS_STATUS_OK);
    if (info.state != EYAS_JOB_STATE_RUNNING || info.unfinished != 1)
        abort();
    EXPECT(eyas_results_open(client, id, &results), EYAS_STATUS_OK);
    EXPECT(eyas_results_next(results, 100, &result, sizeof result), EYAS_STATUS_TIMED_OUT);
    EXPECT(eyas_task_explain(client, id, 0, &explanation), EYAS_STATUS_OK);
    if (!strstr(explanation, "\"schema_version\":1"))
        abort();
    eyas_text_free(explanation);
    eyas_text_free(NULL);
    EXPECT(eyas_task_explain(client, id, 7, &explanation), EYAS_STATUS_REFUSED);
    EXPECT(eyas_job_cancel(client, id), EYAS_STATUS_OK);
    EXPECT(eyas_job_wait(client, id, EYAS_FOREVER, &info, sizeof info), EYAS_STATUS_OK);
    if (info.state != EYAS_JOB_STATE_CANCELLED)
        abort();
    EXPECT(eyas_results_next(results, EYAS_FOREVER, &result, sizeof result), EYAS_STATUS_OK);
    if (result.outcome != EYAS_OUTCOME_CANCELLED)
        abort();
    EXPECT(eyas_results_next(results, EYAS_FOREVER, &result, sizeof result), EYAS_STATUS_END);
    EXPECT(eyas_results_close(results), EYAS_STATUS_OK);
    EXPECT(eyas_job_close(job), EYAS_STATUS_OK);
    EXPECT(eyas_task_close(task), EYAS_STATUS_OK);

    EXPECT(eyas_submit_text(client, text, strlen(text), &id), EYAS_STATUS_OK);
    EXPECT(eyas_results_open(client, id, &results), EYAS_STATUS_OK);
    EXPECT(eyas_results_next(results, EYAS_FOREVER, &result, 3), EYAS_STATUS_INVALID);
    EXPECT(eyas_results_next(results, EYAS_FOREVER, &result, sizeof result), EYAS_STATUS_OK);
    if (result.outcome != EYAS_OUTCOME_EXITED || result.code != 3 ||
        strcmp(result.message, "exit code 3") || strcmp(result.stdout_bytes, "out\n") ||
        strcmp(result.stderr_bytes, "err\n") || result.stdout_length != 4)
        abort();
    EXPECT(eyas_results_close(results), EYAS_STATUS_OK);
}

static void blocks(eyas_client *client)
{
    const char *path = "/a", *absent = "/absent", *output, *again;
    eyas_block *block;
    eyas_piece piece;
    eyas_run_info info;
    eyas_run *run;

    EXPECT(eyas_run_open(client, &absent, 1, 1, 0, &run), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_run_open(client, NULL, 0, 1, 0, &run), EYAS_STATUS_INVALID);
    EXPECT(eyas_run_open(client, &path, 1, 1, 1, &run), EYAS_STATUS_INVALID);
    EXPECT(eyas_run_join(client, "nonsense", &run), EYAS_STATUS_INVALID);
    EXPECT(eyas_run_open(client, &path, 1, 1, 0, &run), EYAS_STATUS_OK);
    EXPECT(eyas_block_open(run, &block), EYAS_STATUS_OK);
    EXPECT(eyas_block_commit(block, "", 0), EYAS_STATUS_INVALID);
    EXPECT(eyas_block_close(block), EYAS_STATUS_OK);
    /* A worker that leaves without a commit leaves its piece to the next one. */
    EXPECT(eyas_block_open(run, &block), EYAS_STATUS_OK);
    EXPECT(eyas_block_next(block, EYAS_FOREVER, &piece, sizeof piece), EYAS_STATUS_OK);
    EXPECT(eyas_block_close(block), EYAS_STATUS_OK);
    EXPECT(eyas_run_wait(run, 100, &info, sizeof info), EYAS_STATUS_TIMED_OUT);
    EXPECT(eyas_block_open(run, &block), EYAS_STATUS_OK);
    EXPECT(eyas_block_next(block, EYAS_FOREVER, &piece, 3), EYAS_STATUS_INVALID);
    EXPECT(eyas_block_next(block, EYAS_FOREVER, &piece, sizeof piece), EYAS_STATUS_OK);
    if (strcmp(piece.bytes, "new") || piece.length != 3 || piece.offset || strcmp(piece.file, "/a"))
        abort();
    EXPECT(eyas_block_next(block, EYAS_FOREVER, &piece, sizeof piece), EYAS_STATUS_END);
    EXPECT(eyas_block_commit(block, "x", 1), EYAS_STATUS_OK);
    EXPECT(eyas_block_commit(block, "x", 1), EYAS_STATUS_INVALID);
    EXPECT(eyas_block_next(block, 1000, &piece, sizeof piece), EYAS_STATUS_INVALID);
    EXPECT(eyas_block_close(block), EYAS_STATUS_OK);
    EXPECT(eyas_run_wait(run, 10000, &info, sizeof info), EYAS_STATUS_OK);
    /* A text is valid until the run is closed, whatever other threads ask for. */
    EXPECT(eyas_run_output(run, 0, &output), EYAS_STATUS_OK);
    EXPECT(eyas_run_output(run, 0, &again), EYAS_STATUS_OK);
    EXPECT(eyas_run_output(run, 1, &again), EYAS_STATUS_END);
    if (output != again || strncmp(output, "/.eyas/", 7))
        abort();
    EXPECT(eyas_run_end(run), EYAS_STATUS_OK);
    EXPECT(eyas_run_output(run, 0, &again), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_run_status(run, &info, sizeof info), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_block_open(run, &block), EYAS_STATUS_NOT_FOUND);
    EXPECT(eyas_run_close(run), EYAS_STATUS_OK);
}

/* A program that gives up waiting, and asks again, gets each piece once: also if it never waits as
 * long as a chunk is read. */
static void impatience(eyas_client *client, const char *path, uint64_t chunk_bytes, uint64_t chunks,
                       uint64_t longest_ms)
{
    eyas_write_options options = {0};
    eyas_writer *writer;
    eyas_block *block;
    eyas_piece piece;
    eyas_status status;
    eyas_run *run;
    char lines[4000];
    uint64_t bytes = 0, total = chunks * chunk_bytes / sizeof lines * sizeof lines;
    time_t limit = time(NULL) + 60;
    uint64_t written, timeouts = 0;

    for (written = 0; written < sizeof lines; written++)
        lines[written] = written % 4 == 3 ? '\n' : 'a';
    options.format = "lines";
    options.chunk_bytes = chunk_bytes;
    EXPECT(eyas_create(client, path, &options, sizeof options, &writer), EYAS_STATUS_OK);
    for (written = 0; written < total; written += sizeof lines)
        EXPECT(eyas_write(writer, lines, sizeof lines), EYAS_STATUS_OK);
    EXPECT(eyas_writer_close(writer), EYAS_STATUS_OK);
    EXPECT(eyas_run_open(client, &path, 1, 1, 0, &run), EYAS_STATUS_OK);
    EXPECT(eyas_block_open(run, &block), EYAS_STATUS_OK);
    for (;;) {
        status = eyas_block_next(block, timeouts % (longest_ms + 1), &piece, sizeof piece);
        if (status == EYAS_STATUS_TIMED_OUT && time(NULL) < limit) {
            timeouts++;
            continue;
        }
        if (status == EYAS_STATUS_END)
            break;
        EXPECT(status, EYAS_STATUS_OK);
        bytes += piece.length;
    }
    if (bytes != total || !timeouts) {
        fprintf(stderr, "%lu bytes with %lu timeouts\n", (unsigned long)bytes,
                (unsigned long)timeouts);
        exit(1);
    }
    EXPECT(eyas_block_commit(block, "x", 1), EYAS_STATUS_OK);
    EXPECT(eyas_block_close(block), EYAS_STATUS_OK);
    EXPECT(eyas_run_end(run), EYAS_STATUS_OK);
    EXPECT(eyas_run_close(run), EYAS_STATUS_OK);
}

/* Handles are of no use in a child, which connects by itself. */
static void child(eyas_client *client)
{
    eyas_file_info info;
    int status;
    pid_t process = fork();

    if (process == 0) {
        EXPECT(eyas_stat(client, "/a", &info, sizeof info), EYAS_STATUS_BAD_HANDLE);
        says("fork");
        EXPECT(eyas_connect(NULL, &client), EYAS_STATUS_OK);
        EXPECT(eyas_stat(client, "/a", &info, sizeof info), EYAS_STATUS_OK);
        EXPECT(eyas_client_close(client), EYAS_STATUS_OK);
        _exit(0);
    }
    if (process < 0 || waitpid(process, &status, 0) != process || status)
        abort();
}

int main(void)
{
    eyas_client *client;
    char line[4];
    size_t count;

    if (eyas_version() != EYAS_VERSION || *eyas_error_message())
        abort();
    connections(&client);
    files(client);
    jobs(client);
    blocks(client);
    impatience(client, "/many", 4096, 100, 1);
    impatience(client, "/large", 16 << 20, 2, 0);
    child(client);
    /* What was made with a client outlives it. */
    EXPECT(eyas_client_close(client), EYAS_STATUS_OK);
    EXPECT(eyas_client_close(client), EYAS_STATUS_BAD_HANDLE);
    EXPECT(eyas_read(shared, 0, line, sizeof line, &count), EYAS_STATUS_OK);
    EXPECT(eyas_reader_close(shared), EYAS_STATUS_OK);
    puts("fine");
    return 0;
}
