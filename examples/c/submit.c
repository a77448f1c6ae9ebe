/* Submits a job, waits for it, and prints what its tasks wrote. */

#include <eyas.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the message of the last failure. */
static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, eyas_error_message());
    exit(1);
}

int main(void)
{
    const char *words[] = {"sh", "-c", "echo \"$GREETING, $1\"", "sh", "{}"};
    const char *names[] = {"Ishmael", "Queequeg", "Ahab"};
    eyas_client *client;
    eyas_task *task;
    eyas_job *job;
    eyas_results *results;
    eyas_task_result result;
    eyas_job_info info;
    eyas_status status;
    uint32_t id;
    size_t i;

    /* The cluster of $EYAS_CLUSTER, else the one called `default`. */
    if (eyas_connect(NULL, &client))
        fail("connect");

    /* An array: one task for each name. */
    if (eyas_task_open(words, sizeof words / sizeof *words, &task))
        fail("task");
    for (i = 0; i < sizeof names / sizeof *names; i++)
        if (eyas_task_add_item(task, &names[i], 1))
            fail("item");
    if (eyas_task_set_env(task, "GREETING", "Call me") || eyas_task_set_cpus(task, 0.5))
        fail("task");
    if (eyas_job_open("names", &job) || eyas_job_add(job, task))
        fail("job");
    if (eyas_job_submit(client, job, &id))
        fail("submit");
    eyas_job_close(job);
    eyas_task_close(task);

    /* Results come in the order in which the tasks end. */
    if (eyas_results_open(client, id, &results))
        fail("results");
    while ((status = eyas_results_next(results, EYAS_FOREVER, &result, sizeof result)) ==
           EYAS_STATUS_OK)
        printf("task %u on %s %s: %.*s", (unsigned)result.task, result.executor, result.message,
               (int)result.stdout_length, result.stdout_bytes);
    if (status != EYAS_STATUS_END)
        fail("results");
    eyas_results_close(results);

    if (eyas_job_wait(client, id, 60000, &info, sizeof info))
        fail("wait");
    printf("job %u: %u of %u tasks succeeded\n", (unsigned)id, (unsigned)info.succeeded,
           (unsigned)(info.succeeded + info.failed + info.cancelled + info.unfinished));
    eyas_client_close(client);
    return info.state == EYAS_JOB_STATE_SUCCEEDED ? 0 : 1;
}
