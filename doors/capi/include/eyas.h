/*
 * The C library of eyas: jobs, files and elastic blocks of a cluster.
 *
 * This file is generated from doors/capi/src by `make generate`; docs/guides/c.md is its guide.
 *
 * Statuses. Functions return an eyas_status, 0 for success. eyas_error_message() is the message of
 * the last failure in this thread. A function that fails writes no result.
 *
 * Handles. Functions that make a handle are named ..._open, _connect, _create, _append, _edit or
 * _list. Each handle is closed once, by the function that its maker names; after that, using it is
 * an error (EYAS_STATUS_BAD_HANDLE), and never undefined. A handle keeps what it needs of the
 * handles it was made with, so they can be closed in any order.
 *
 * Memory. The library copies what it is given before a function returns. Texts are UTF-8 and end
 * with NUL; bytes have a length. What the library returns a pointer to belongs to the handle that
 * the function names, or is freed with eyas_text_free().
 *
 * Structs. A function that fills a struct has a parameter `size`: pass the sizeof of the struct.
 * Later versions add fields at the end only.
 *
 * Threads. All functions can be called from any thread, and threads can use one handle at the same
 * time, unless the type of the handle says otherwise. Functions block until they are done.
 *
 * Signals. Signals do not interrupt a call. The threads of the library block all signals; a lost
 * connection never raises SIGPIPE.
 *
 * Fork. If another thread was inside the library during a fork, the child must not call any
 * function: the call could wait for ever. fork() followed by exec() is always safe. Otherwise the
 * child may connect by itself; handles of the parent are of no use to it (EYAS_STATUS_BAD_HANDLE).
 */


#ifndef EYAS_H
#define EYAS_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header, to compare with eyas_version(). */
#define EYAS_VERSION ((EYAS_VERSION_MAJOR << 16) | (EYAS_VERSION_MINOR << 8) | EYAS_VERSION_PATCH)

/**
 * An owner that stays as it is, in `eyas_set_owner()`.
 */
#define EYAS_UNCHANGED UINT32_MAX

/**
 * A limit that does not exist, in quotas.
 */
#define EYAS_NO_LIMIT UINT64_MAX

/**
 * A timeout without end.
 */
#define EYAS_FOREVER UINT64_MAX

/**
 * An attribute that must not be there yet, in `eyas_set_attribute()`.
 */
#define EYAS_ATTRIBUTE_NEW 1

/**
 * An attribute that must be there already, in `eyas_set_attribute()`.
 */
#define EYAS_ATTRIBUTE_PRESENT 2

/**
 * First number of the version of this header.
 */
#define EYAS_VERSION_MAJOR 0

/**
 * Second number of the version of this header. While the first is 0, another second number is
 * another interface.
 */
#define EYAS_VERSION_MINOR 1

/**
 * Third number of the version of this header.
 */
#define EYAS_VERSION_PATCH 0

/**
 * The result of a function. 0 is success. Later versions may add further statuses; treat an
 * unknown one as an error.
 */
typedef enum {
  /**
   * Success.
   */
  EYAS_STATUS_OK = 0,
  /**
   * The end: there is no further result, entry or piece. Not an error.
   */
  EYAS_STATUS_END = 1,
  /**
   * An argument is not possible: NULL, not UTF-8, not a path, out of range; or a mistake in a
   * job.
   */
  EYAS_STATUS_INVALID = 2,
  /**
   * The handle is NULL, closed, of another type, or was made before a fork.
   */
  EYAS_STATUS_BAD_HANDLE = 3,
  /**
   * The file, run or cluster does not exist.
   */
  EYAS_STATUS_NOT_FOUND = 4,
  /**
   * A file of this name exists already.
   */
  EYAS_STATUS_EXISTS = 5,
  /**
   * Another client has changed the file at the same time. Look at it again.
   */
  EYAS_STATUS_CHANGED = 6,
  /**
   * The key of the cluster does not permit this.
   */
  EYAS_STATUS_NOT_ALLOWED = 7,
  /**
   * No node has enough space.
   */
  EYAS_STATUS_FULL = 8,
  /**
   * No replica of a part of the file can be read.
   */
  EYAS_STATUS_LOST = 9,
  /**
   * The cluster cannot be reached, or too few of its nodes answer. A retry can help.
   */
  EYAS_STATUS_UNREACHABLE = 10,
  /**
   * The call has not ended within its timeout. What it should change may have been changed.
   */
  EYAS_STATUS_TIMED_OUT = 11,
  /**
   * The dispatcher refuses the request; the message has its reason.
   */
  EYAS_STATUS_REFUSED = 12,
  /**
   * Other workers have processed the block: its results must be discarded.
   */
  EYAS_STATUS_DISCARDED = 13,
  /**
   * A failure of this machine: a file, a folder or a thread.
   */
  EYAS_STATUS_LOCAL = 14,
  /**
   * A bug in eyas. Please report the message.
   */
  EYAS_STATUS_INTERNAL = 15,
  /**
   * The name is that of a folder, and the function needs a file.
   */
  EYAS_STATUS_IS_FOLDER = 16,
  /**
   * The name, or a part of it, is that of a file, and the function needs a folder.
   */
  EYAS_STATUS_NOT_FOLDER = 17,
  /**
   * The folder is not empty.
   */
  EYAS_STATUS_NOT_EMPTY = 18,
  /**
   * A quota of a folder does not permit it.
   */
  EYAS_STATUS_QUOTA = 19,
  /**
   * The file has no named attribute of this name.
   */
  EYAS_STATUS_NO_ATTRIBUTE = 20,
  /**
   * The named attributes of the file together would be too large.
   */
  EYAS_STATUS_ATTRIBUTES_FULL = 21,
} eyas_status;

/**
 * The kind of an entry.
 */
typedef enum {
  /**
   * A file with content.
   */
  EYAS_FILE_KIND_FILE = 0,
  /**
   * A folder.
   */
  EYAS_FILE_KIND_FOLDER = 1,
  /**
   * A symbolic link. This library does not follow it.
   */
  EYAS_FILE_KIND_SYMBOLIC_LINK = 2,
} eyas_file_kind;

/**
 * The state of a job.
 */
typedef enum {
  /**
   * At least one task has not ended.
   */
  EYAS_JOB_STATE_RUNNING = 0,
  /**
   * All tasks succeeded.
   */
  EYAS_JOB_STATE_SUCCEEDED = 1,
  /**
   * At least one task failed.
   */
  EYAS_JOB_STATE_FAILED = 2,
  /**
   * The job was cancelled, and no task failed.
   */
  EYAS_JOB_STATE_CANCELLED = 3,
} eyas_job_state;

/**
 * How a task ended.
 */
typedef enum {
  /**
   * The command has ended with exit code 0, and all outputs were delivered.
   */
  EYAS_OUTCOME_SUCCEEDED = 0,
  /**
   * The command has ended with another exit code: `code`.
   */
  EYAS_OUTCOME_EXITED = 1,
  /**
   * The command was killed by a signal: `code`.
   */
  EYAS_OUTCOME_SIGNALLED = 2,
  /**
   * The command has exceeded its time limit.
   */
  EYAS_OUTCOME_TIMED_OUT = 3,
  /**
   * The task was cancelled.
   */
  EYAS_OUTCOME_CANCELLED = 4,
  /**
   * Eyas could not run the task, or could not deliver its outputs: `message` says why.
   */
  EYAS_OUTCOME_FAILED = 5,
} eyas_outcome;

/**
 * The named attributes of a file, folder or link. One thread at a time may use it, because the
 * names and values belong to it.
 */
typedef struct eyas_attributes eyas_attributes;

/**
 * A block of a run: the pieces that one worker processes and commits together. One thread at a
 * time may use a block; a program with several threads has a block for each.
 */
typedef struct eyas_block eyas_block;

/**
 * A connection to a cluster. Threads may use one client at the same time.
 */
typedef struct eyas_client eyas_client;

/**
 * A job that is not submitted yet.
 */
typedef struct eyas_job eyas_job;

/**
 * Entries of a folder. One thread at a time may use it, because the names belong to it.
 */
typedef struct eyas_listing eyas_listing;

/**
 * The places of the chunks of a file. One thread at a time may use it, because the texts belong to
 * it.
 */
typedef struct eyas_places eyas_places;

/**
 * A file of the cluster that is open for reading, at the version that it had when it was opened.
 * Threads may use one reader at the same time.
 */
typedef struct eyas_reader eyas_reader;

/**
 * The results of a job. One thread at a time may use it, because the texts of a result belong to
 * it.
 */
typedef struct eyas_results eyas_results;

/**
 * A run over the blocks of files. Threads may use one run at the same time.
 */
typedef struct eyas_run eyas_run;

/**
 * The description of a task, or of an array of tasks with one command. It has the fields of a task
 * in a job file, with placeholders such as `{}`.
 */
typedef struct eyas_task eyas_task;

/**
 * A file that is being written. Threads may use one writer at the same time; the order of their
 * bytes is that of their calls.
 */
typedef struct eyas_writer eyas_writer;

/**
 * Limits on everything below a folder, and how much of them is used.
 */
typedef struct {
  /**
   * Maximum size of all files together, bytes; `EYAS_NO_LIMIT` if there is no limit. Replicas
   * do not count.
   */
  uint64_t bytes;
  /**
   * Maximum number of files, folders and links; `EYAS_NO_LIMIT` if there is no limit.
   */
  uint64_t files;
  /**
   * Size of all files together, bytes.
   */
  uint64_t used_bytes;
  /**
   * Number of files, folders and links.
   */
  uint64_t used_files;
} eyas_quota;
/**
 * Bytes of the first version of this struct.
 */
#define eyas_quota_FIRST_SIZE 32

/**
 * How a run is led. Set everything that is not needed to 0 or NULL.
 */
typedef struct {
  /**
   * The scheduler that assigns pieces, and its parameters: `lean`, `lean,alpha=0.7`, `static`,
   * `multiwave,min-block=1MiB,waves=3`, `io-aware,alpha=0.5,beta=0.25`. NULL for `lean`.
   */
  const char *policy;
  /**
   * A worker that is silent for this time loses its block, milliseconds; 0 for 10,000.
   */
  uint64_t term_ms;
  /**
   * The run is forgotten if no program has asked about it for this time, milliseconds; 0 for
   * half an hour.
   */
  uint64_t idle_ms;
  /**
   * Expected number of workers or tasks.
   */
  uint32_t workers;
  /**
   * Set to 0.
   */
  uint32_t reserved;
} eyas_run_options;

/**
 * A run, as it stands.
 */
typedef struct {
  /**
   * Number of chunks of all files.
   */
  uint32_t chunks;
  /**
   * Number of chunks whose output is committed.
   */
  uint32_t committed_chunks;
  /**
   * Number of outputs that count.
   */
  uint32_t outputs;
  /**
   * 1 if all chunks are committed, else 0.
   */
  uint32_t is_complete;
} eyas_run_info;

/**
 * A piece of a block. What it points to belongs to the block, and is valid until the next call
 * with the block.
 */
typedef struct {
  /**
   * Name of the file.
   */
  const char *file;
  /**
   * Place of the piece in the file.
   */
  uint64_t offset;
  /**
   * The content: `length` bytes, which are whole records, and a NUL after them.
   */
  const char *bytes;
  /**
   * Number of bytes.
   */
  size_t length;
} eyas_piece;

/**
 * A file, folder or link of the cluster, as it was looked up or listed.
 */
typedef struct {
  /**
   * Size in bytes.
   */
  uint64_t size_bytes;
  /**
   * Time of the last write, nanoseconds since 1970.
   */
  uint64_t modified_ns;
  /**
   * Time of the last change of the content or an attribute, nanoseconds since 1970.
   */
  uint64_t changed_ns;
  /**
   * The kind of the entry.
   */
  eyas_file_kind kind;
  /**
   * Permission bits.
   */
  uint32_t mode;
  /**
   * User id of the owner.
   */
  uint32_t uid;
  /**
   * Group id of the owner.
   */
  uint32_t gid;
  /**
   * Size of the chunks of a file, bytes. 0 for an entry of a listing, and for what is no file.
   */
  uint64_t chunk_bytes;
  /**
   * Wanted number of replicas of each chunk. 0 for an entry of a listing, and for what is no
   * file.
   */
  uint32_t replication;
  /**
   * 0 in this version.
   */
  uint32_t reserved;
} eyas_file_info;
/**
 * Bytes of the first version of this struct.
 */
#define eyas_file_info_FIRST_SIZE 40

/**
 * A job, as it stands.
 */
typedef struct {
  /**
   * Tasks that wait for outputs of others, for an executor, or run.
   */
  uint64_t unfinished;
  /**
   * Tasks that succeeded.
   */
  uint64_t succeeded;
  /**
   * Tasks that failed.
   */
  uint64_t failed;
  /**
   * Tasks that were cancelled.
   */
  uint64_t cancelled;
  /**
   * Microseconds from the acceptance of the job to its end, or to now.
   */
  uint64_t elapsed_us;
  /**
   * Id of the job.
   */
  uint32_t job;
  /**
   * The state of the job.
   */
  eyas_job_state state;
  /**
   * 1 if tasks wait for executors, or for larger executors, than there are; else 0.
   */
  uint32_t is_stuck;
  /**
   * 0 in this version.
   */
  uint32_t reserved;
} eyas_job_info;

/**
 * A replica of a chunk of a file. A chunk with several replicas comes several times; zeros that no
 * node stores come once, without a node.
 */
typedef struct {
  /**
   * Where the chunk begins in the file.
   */
  uint64_t offset;
  /**
   * Size of the chunk, bytes.
   */
  uint64_t size_bytes;
  /**
   * The number of the chunk's block. A program that processes records reads whole blocks: each
   * is one chunk, except in a file that is one record, whose chunks are all of one block.
   */
  uint64_t block;
  /**
   * The node that has the chunk; NULL for zeros that no node stores.
   */
  const char *node;
  /**
   * The address of the node's host; NULL while the node is not connected.
   */
  const char *host;
  /**
   * 1 if the node is that of this machine, as its executor has told this process.
   */
  uint32_t is_near;
} eyas_block_place;

/**
 * The result of a task. What it points to belongs to the results, and is valid until the next call
 * of `eyas_results_next()` or `eyas_results_close()` with them. Texts and outputs are never NULL.
 */
typedef struct {
  /**
   * Index of the task in its job, from 0.
   */
  uint32_t task;
  /**
   * Number of earlier assignments of the task.
   */
  uint32_t attempt;
  /**
   * How the task ended.
   */
  eyas_outcome outcome;
  /**
   * Exit code or signal; else 0.
   */
  int32_t code;
  /**
   * The outcome in words.
   */
  const char *message;
  /**
   * Name of the executor.
   */
  const char *executor;
  /**
   * Captured standard output: `stdout_length` bytes, and a NUL after them.
   */
  const char *stdout_bytes;
  /**
   * Number of bytes of standard output.
   */
  size_t stdout_length;
  /**
   * Captured standard error: `stderr_length` bytes, and a NUL after them.
   */
  const char *stderr_bytes;
  /**
   * Number of bytes of standard error.
   */
  size_t stderr_length;
  /**
   * Bytes of both that were not captured.
   */
  uint64_t cut_bytes;
  /**
   * Microseconds from start to end, without suspension.
   */
  uint64_t ran_us;
  /**
   * Microseconds of processor time.
   */
  uint64_t cpu_us;
} eyas_task_result;

/**
 * Options of a new file.
 */
typedef struct {
  /**
   * The format of the file's records, so that no block ends inside one: `lines`, `csv`,
   * `json-lines`, `fasta`, `fastq`, `fixed:BYTES`, `length-prefixed:BYTESbe`, `bgzf`, `bzip2`,
   * `zstd`, `whole`. NULL: by the name and the content, as `eyas dfs put` guesses.
   */
  const char *format;
  /**
   * Size of its chunks, bytes; 0 for the default.
   */
  uint64_t chunk_bytes;
  /**
   * Number of replicas; 0 for the default.
   */
  uint32_t replication;
  /**
   * 1 to replace a file of this name, which readers see until the writer is closed; 0 for an
   * error if there is one.
   */
  uint32_t replaces;
} eyas_write_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a symbolic link. The target may be any path, and is not checked. Missing folders above the
 * link are made.
 */
eyas_status eyas_make_symbolic_link(eyas_client *client, const char *path, const char *target);

/**
 * Reads the target of a symbolic link. On success, `*target` is a text to be freed with
 * `eyas_text_free()`.
 */
eyas_status eyas_read_symbolic_link(eyas_client *client, const char *path, char **target);

/**
 * Sets the permission bits of a file, folder or link: up to `07777`.
 */
eyas_status eyas_set_mode(eyas_client *client, const char *path, uint32_t mode);

/**
 * Sets the owner and the group of a file, folder or link. An id that is `EYAS_UNCHANGED` stays as
 * it is.
 */
eyas_status eyas_set_owner(eyas_client *client, const char *path, uint32_t uid, uint32_t gid);

/**
 * Sets the time of the last write of a file, folder or link, nanoseconds since 1970.
 */
eyas_status eyas_set_modified(eyas_client *client, const char *path, uint64_t modified_ns);

/**
 * Sets the quota of a folder: limits on everything below it, each `EYAS_NO_LIMIT` or a number. Two
 * limits that are `EYAS_NO_LIMIT` remove the quota. What is there already may exceed the quota;
 * then nothing can be added, and the status of calls that would add something is
 * `EYAS_STATUS_QUOTA`.
 */
eyas_status eyas_set_quota(eyas_client *client, const char *folder, uint64_t bytes, uint64_t files);

/**
 * Writes the quota of a folder, and what is below the folder, to `*quota`, which has `size` bytes:
 * pass `sizeof *quota`. A folder without a quota has no limits.
 */
eyas_status eyas_get_quota(eyas_client *client, const char *folder, eyas_quota *quota, size_t size);

/**
 * Opens a run over `count` files, for about `workers` workers. A worker that is silent for
 * `term_ms` loses its block; 0 for 10,000 ms. On success, `*run` is a handle to be closed with
 * `eyas_run_close()`. Keep it open while workers are busy: half an hour after its program has
 * ended, the run is forgotten.
 */
eyas_status eyas_run_open(eyas_client *client,
                          const char *const *paths,
                          size_t count,
                          uint32_t workers,
                          uint64_t term_ms,
                          eyas_run **run);

/**
 * Opens a run as `eyas_run_open()` does, with further options. `size` is `sizeof *options`. While
 * the handle is open, the run is not idle; neither is it while a program has a block of it.
 */
eyas_status eyas_run_open_with(eyas_client *client,
                               const char *const *paths,
                               size_t count,
                               const eyas_run_options *options,
                               size_t size,
                               eyas_run **run);

/**
 * Joins a run that another program has opened, by its address. On success, `*run` is a handle as
 * that of `eyas_run_open()`.
 */
eyas_status eyas_run_join(eyas_client *client, const char *address, eyas_run **run);

/**
 * Writes the address of a run to `*address`, for `eyas_run_join()` in other programs. The text
 * belongs to the run.
 */
eyas_status eyas_run_address(eyas_run *run, const char **address);

/**
 * Writes how a run stands to `*info`, which has `size` bytes: pass `sizeof *info`.
 */
eyas_status eyas_run_status(eyas_run *run, eyas_run_info *info, size_t size);

/**
 * Waits until all chunks are committed, for up to `timeout_ms`, and writes how the run stands to
 * `*info`, as `eyas_run_status()` does.
 */
eyas_status eyas_run_wait(eyas_run *run, uint64_t timeout_ms, eyas_run_info *info, size_t size);

/**
 * Writes the name of the output with this number to `*path`, in the order of the first piece of
 * each output, from 0. The output is a hidden file: read it with `eyas_open()`, or keep it with
 * `eyas_rename()`, before the run is ended. The text belongs to the run, and is valid until the
 * run is closed. The status is `EYAS_STATUS_END` if there are fewer outputs. Until the run is
 * complete, a further output may take a number, and those after it move: call `eyas_run_wait()`
 * first.
 */
eyas_status eyas_run_output(eyas_run *run, uint32_t number, const char **path);

/**
 * Ends a run for all its workers, and removes its outputs that were not renamed. The handle stays
 * open.
 */
eyas_status eyas_run_end(eyas_run *run);

/**
 * Closes the handle of a run. The run goes on for other programs.
 */
eyas_status eyas_run_close(eyas_run *run);

/**
 * Begins a block, which has no piece at first. On success, `*block` is a handle to be closed with
 * `eyas_block_close()`.
 */
eyas_status eyas_block_open(eyas_run *run, eyas_block **block);

/**
 * Begins an attempt of a task of another framework, such as Hadoop, which decides which attempt of
 * a task counts. Tasks have numbers below 1,048,576. All attempts of a task get the same pieces,
 * in the same order, also if they run at once, or after one has ended. `eyas_block_next()` returns
 * them; its statuses mean:
 *
 * - `EYAS_STATUS_END`: the attempt has read all pieces of its task, which stay the same for ever.
 *   It may count. It has nothing to commit.
 * - `EYAS_STATUS_DISCARDED`: no attempt of the task has reported within the term of the run, and
 *   the pieces went to other tasks. The attempt must fail, and the framework begin another one.
 *
 * If all tasks of the framework have an attempt that counts, these attempts have read each piece
 * once. An attempt that is closed before its end leaves its pieces to the task.
 */
eyas_status eyas_block_open_task(eyas_run *run, uint32_t task, eyas_block **block);

/**
 * Claims the next piece of the block, and writes it to `*piece`, which has `size` bytes: pass
 * `sizeof *piece`. The piece before it counts as processed from now on. Statuses:
 *
 * - `EYAS_STATUS_END`: the block has no further piece: commit it. If it had none at all, the run
 *   has no work left.
 * - `EYAS_STATUS_DISCARDED`: other workers have processed the block: discard its results, close
 *   it, begin another one.
 * - `EYAS_STATUS_TIMED_OUT`: within `timeout_ms`, no piece was free, or the next piece was not
 *   read to its end. Call it again, or close the block.
 */
eyas_status eyas_block_next(eyas_block *block, uint64_t timeout_ms, eyas_piece *piece, size_t size);

/**
 * Stores the output of all pieces that the block has given out, and commits it: of everything that
 * was computed for a piece, one output counts. The status is `EYAS_STATUS_DISCARDED` if this
 * output does not. A block can be committed before its end; pieces that were not claimed go to
 * other workers.
 */
eyas_status eyas_block_commit(eyas_block *block, const void *output, size_t length);

/**
 * Closes a block. Pieces that were not committed go to other workers.
 */
eyas_status eyas_block_close(eyas_block *block);

/**
 * Connects to a cluster by its name. If `name` is NULL, the cluster is that of the command `eyas`
 * without options: `$EYAS_ACCESS`, else `$EYAS_CLUSTER`, else `default`. On success, `*client` is
 * a handle to be closed with `eyas_client_close()`.
 */
eyas_status eyas_connect(const char *name, eyas_client **client);

/**
 * Connects to a cluster with an access file. On success, `*client` is a handle to be closed with
 * `eyas_client_close()`.
 */
eyas_status eyas_connect_access(const char *path, eyas_client **client);

/**
 * Sets the time after which a call with this client, or with a handle made with it, fails with
 * `EYAS_STATUS_TIMED_OUT`; `EYAS_FOREVER` for never. The default is 60,000 ms. Functions with a
 * timeout of their own do not use this one. If files cannot be used, calls fail after about half
 * of the timeout, and at most 25,000 ms, with `EYAS_STATUS_UNREACHABLE` and a message that says
 * why.
 */
eyas_status eyas_client_set_timeout(eyas_client *client, uint64_t timeout_ms);

/**
 * Closes a client. Handles that were made with it stay valid; its connections end with the last of
 * them.
 */
eyas_status eyas_client_close(eyas_client *client);

/**
 * Looks up a file, folder or link, and writes what is found to `*info`, which has `size` bytes:
 * pass `sizeof *info`.
 */
eyas_status eyas_stat(eyas_client *client, const char *path, eyas_file_info *info, size_t size);

/**
 * Renames a file, link or folder. The status is `EYAS_STATUS_EXISTS` if the new name is in use. A
 * folder with content is not renamed at once: its entries move one after another, and if the call
 * fails, it can be repeated.
 */
eyas_status eyas_rename(eyas_client *client, const char *from, const char *to);

/**
 * Renames as `eyas_rename()` does, and replaces what has the new name, as `rename()` of POSIX
 * does: a file or link takes the place of a file or link, and a folder that of an empty folder.
 * The status is `EYAS_STATUS_IS_FOLDER`, `EYAS_STATUS_NOT_FOLDER` or `EYAS_STATUS_NOT_EMPTY` if
 * that is not possible.
 */
eyas_status eyas_replace(eyas_client *client, const char *from, const char *to);

/**
 * Makes a folder, and those above it that are missing. A file can also be written without its
 * folder: the folder is made then.
 */
eyas_status eyas_make_folder(eyas_client *client, const char *path);

/**
 * Removes an empty folder.
 */
eyas_status eyas_remove_folder(eyas_client *client, const char *path);

/**
 * Removes a file or link. Programs that have it open may still read it for a while.
 */
eyas_status eyas_remove(eyas_client *client, const char *path);

/**
 * Lists the entries of a folder; `/` is the root. If `recursive` is 1, entries of all its
 * subfolders are listed, too, in the order of the bytes of their names. Entries that appear or go
 * meanwhile may be listed or not. On success, `*listing` is a handle to be closed with
 * `eyas_listing_close()`.
 */
eyas_status eyas_list(eyas_client *client,
                      const char *folder,
                      uint32_t recursive,
                      eyas_listing **listing);

/**
 * Writes the next entry of a listing to `*info`, as `eyas_stat()` does, and its name to `*name`.
 * The name belongs to the listing, and is valid until the next call with it. The status is
 * `EYAS_STATUS_END` if there is no other entry. Some calls ask the nodes for more entries, and may
 * fail as `eyas_list()` does; then the call can be repeated.
 */
eyas_status eyas_listing_next(eyas_listing *listing,
                              const char **name,
                              eyas_file_info *info,
                              size_t size);

/**
 * Closes a listing.
 */
eyas_status eyas_listing_close(eyas_listing *listing);

/**
 * Begins a job without tasks. On success, `*job` is a handle to be closed with `eyas_job_close()`.
 */
eyas_status eyas_job_open(const char *name, eyas_job **job);

/**
 * Adds a task, or an array of tasks, as it is described now.
 */
eyas_status eyas_job_add(eyas_job *job, const eyas_task *task);

/**
 * Submits a job, and writes its id to `*id`. When this returns, the job is on the disk of the
 * dispatcher. Relative paths begin at the current folder. The job stays open, and can be submitted
 * again.
 */
eyas_status eyas_job_submit(eyas_client *client, eyas_job *job, uint32_t *id);

/**
 * Submits a job that is described by the text of a job file, `length` bytes of TOML, and writes
 * its id to `*id`. When this returns, the job is on the disk of the dispatcher. Relative paths
 * begin at the current folder.
 */
eyas_status eyas_submit_text(eyas_client *client, const char *text, size_t length, uint32_t *id);

/**
 * Closes a job that was made with `eyas_job_open()`. A job that was submitted goes on.
 */
eyas_status eyas_job_close(eyas_job *job);

/**
 * Writes how a job stands to `*info`, which has `size` bytes: pass `sizeof *info`.
 */
eyas_status eyas_job_status(eyas_client *client, uint32_t job, eyas_job_info *info, size_t size);

/**
 * Waits until a job has ended, for up to `timeout_ms`. `info` is as for `eyas_job_status()`, or
 * NULL. The status is `EYAS_STATUS_OK` also if tasks failed: look at `info->state`. If the
 * dispatcher is started again meanwhile, the wait goes on.
 */
eyas_status eyas_job_wait(eyas_client *client,
                          uint32_t job,
                          uint64_t timeout_ms,
                          eyas_job_info *info,
                          size_t size);

/**
 * Cancels all tasks of a job that have not ended.
 */
eyas_status eyas_job_cancel(eyas_client *client, uint32_t job);

/**
 * Explains why a task of a job waits, or where it ran and why, as the JSON of `eyas explain
 * --json`. On success, `*text` is a text to be freed with `eyas_text_free()`.
 */
eyas_status eyas_task_explain(eyas_client *client, uint32_t job, uint32_t task, char **text);

/**
 * Frees a text that a function of this library has made for the program. NULL is possible.
 */
void eyas_text_free(char *text);

/**
 * Sets a named attribute of a file, folder or link to `length` bytes. Renames, changes of the
 * content and copies keep it; a file that `eyas_create()` replaces loses it. A mount shows it as
 * an extended attribute `user.NAME`. `condition` is 0, `EYAS_ATTRIBUTE_NEW` (the status may be
 * `EYAS_STATUS_EXISTS`) or `EYAS_ATTRIBUTE_PRESENT` (it may be `EYAS_STATUS_NO_ATTRIBUTE`). A name
 * has up to 250 bytes, and all names and values of a file together up to 64 KiB.
 */
eyas_status eyas_set_attribute(eyas_client *client,
                               const char *path,
                               const char *name,
                               const void *value,
                               size_t length,
                               uint32_t condition);

/**
 * Reads a named attribute of a file, folder or link: writes its value to `buffer`, which has room
 * for `size` bytes, and the number of its bytes to `*length`. With a `size` of 0, only the number.
 * The status is `EYAS_STATUS_NO_ATTRIBUTE` if there is no such attribute, and
 * `EYAS_STATUS_INVALID` if its value is longer than the buffer.
 */
eyas_status eyas_get_attribute(eyas_client *client,
                               const char *path,
                               const char *name,
                               void *buffer,
                               size_t size,
                               size_t *length);

/**
 * Removes a named attribute of a file, folder or link. The status is `EYAS_STATUS_NO_ATTRIBUTE` if
 * there is no such attribute.
 */
eyas_status eyas_remove_attribute(eyas_client *client, const char *path, const char *name);

/**
 * Looks up the named attributes of a file, folder or link. On success, `*attributes` is a handle
 * to be closed with `eyas_attributes_close()`.
 */
eyas_status eyas_attributes_open(eyas_client *client,
                                 const char *path,
                                 eyas_attributes **attributes);

/**
 * Writes the name of the next attribute to `*name`, its value to `*value`, and the number of bytes
 * of the value to `*length`. The attributes come in the order of their names. Name and value
 * belong to the attributes, and are valid until the next call with them. The status is
 * `EYAS_STATUS_END` if there is no other attribute.
 */
eyas_status eyas_attributes_next(eyas_attributes *attributes,
                                 const char **name,
                                 const void **value,
                                 size_t *length);

/**
 * Closes attributes.
 */
eyas_status eyas_attributes_close(eyas_attributes *attributes);

/**
 * Looks up where the chunks of a file are, to run programs where their data is. On success,
 * `*places` is a handle to be closed with `eyas_places_close()`.
 */
eyas_status eyas_places_open(eyas_client *client, const char *path, eyas_places **places);

/**
 * Writes the next replica to `*place`, which has `size` bytes: pass `sizeof *place`. The replicas
 * come in the order of the file. The texts belong to the places, and are valid until the next call
 * with them. The status is `EYAS_STATUS_END` if there is no other replica.
 */
eyas_status eyas_places_next(eyas_places *places, eyas_block_place *place, size_t size);

/**
 * Closes places.
 */
eyas_status eyas_places_close(eyas_places *places);

/**
 * Opens a file for reading. On success, `*reader` is a handle to be closed with
 * `eyas_reader_close()`.
 */
eyas_status eyas_open(eyas_client *client, const char *path, eyas_reader **reader);

/**
 * Writes the size and the attributes of the open file to `*info`, as `eyas_stat()` does.
 */
eyas_status eyas_reader_info(eyas_reader *reader, eyas_file_info *info, size_t size);

/**
 * Reads up to `length` bytes from `offset` into `buffer`, and writes their number to `*count`. It
 * is less than `length` only at the end of the file, and 0 beyond it.
 */
eyas_status eyas_read(eyas_reader *reader,
                      uint64_t offset,
                      void *buffer,
                      size_t length,
                      size_t *count);

/**
 * Closes a file that was open for reading.
 */
eyas_status eyas_reader_close(eyas_reader *reader);

/**
 * Begins to read the results of a job, from the first one. On success, `*results` is a handle to
 * be closed with `eyas_results_close()`.
 */
eyas_status eyas_results_open(eyas_client *client, uint32_t job, eyas_results **results);

/**
 * Waits for the next result, for up to `timeout_ms`, and writes it to `*result`, which has `size`
 * bytes: pass `sizeof *result`. Each result comes once, in the order in which the tasks ended. The
 * status is `EYAS_STATUS_END` when the job has ended and all its results were read.
 */
eyas_status eyas_results_next(eyas_results *results,
                              uint64_t timeout_ms,
                              eyas_task_result *result,
                              size_t size);

/**
 * Closes results.
 */
eyas_status eyas_results_close(eyas_results *results);

/**
 * The name of a status, such as `EYAS_STATUS_NOT_FOUND`. Never NULL. The text is static.
 */
const char *eyas_status_name(int32_t status);

/**
 * The message of the last function that failed in this thread: what failed, and what to do. Never
 * NULL; empty if none has failed. The text belongs to the library, and is valid until the next
 * function of the library fails in this thread, or the thread ends.
 */
const char *eyas_error_message(void);

/**
 * Makes the description of a task that runs a command: `count` words, program first. On success,
 * `*task` is a handle to be closed with `eyas_task_close()`.
 */
eyas_status eyas_task_open(const char *const *words, size_t count, eyas_task **task);

/**
 * Sets the `id` by which later tasks of the job read outputs of this one.
 */
eyas_status eyas_task_set_id(eyas_task *task, const char *id);

/**
 * Makes an array: one task for each call of this function, whose item has `count` columns, `{1}`,
 * `{2}` … in the command; `{}` is the whole item.
 */
eyas_status eyas_task_add_item(eyas_task *task, const char *const *columns, size_t count);

/**
 * Makes an array: one task for each file that matches a pattern, such as `eyas:///data/` followed
 * by `*.csv`. Each task reads its file; `{}` in the command is its path.
 */
eyas_status eyas_task_add_each(eyas_task *task, const char *pattern);

/**
 * Makes an array: one task for each block of the files of the cluster that match a pattern.
 */
eyas_status eyas_task_add_each_block(eyas_task *task, const char *pattern);

/**
 * Makes an array: one task for each number of a range, such as `1-100` or `0-90:30`.
 */
eyas_status eyas_task_set_array(eyas_task *task, const char *range);

/**
 * Adds a file that the task reads: a path or URL, which may have placeholders. A word of the
 * command that is equal to it becomes the path on the node. `name` is the name in the task's
 * folder; NULL for the file's own.
 */
eyas_status eyas_task_add_input(eyas_task *task, const char *path, const char *name);

/**
 * Adds an output of another task of the job, which was added before: the output `file` of the task
 * with the `id`; its first output if `file` is NULL. If that is an array, the outputs of all of
 * its tasks are added. Outputs of one name get folders of their own, such as `input-3/out`.
 */
eyas_status eyas_task_add_input_of(eyas_task *task, const char *id, const char *file);

/**
 * The same, and names the outputs in the task's folder: `{index}` in `into` stands for the index
 * of the task that writes the output in its array, from 0, and placeholders such as `{/.}` stand
 * for the item of that task. `into` may be NULL.
 */
eyas_status eyas_task_add_input_into(eyas_task *task,
                                     const char *id,
                                     const char *file,
                                     const char *into);

/**
 * Adds a file, or a glob, that the task writes in its folder. `to` is its destination: a path, a
 * URL such as `eyas:///results/{/.}`, or NULL for the folder of the program that submits. If
 * `replicas` is not 0, executors keep that number of replicas in the cluster, and `to` may be NULL
 * for no other destination.
 */
eyas_status eyas_task_add_output(eyas_task *task,
                                 const char *file,
                                 const char *to,
                                 uint8_t replicas);

/**
 * Sets an environment variable of the task.
 */
eyas_status eyas_task_set_env(eyas_task *task, const char *name, const char *value);

/**
 * Sets the working folder; `sandbox` for a folder of the task's own, which is the default for a
 * task with outputs.
 */
eyas_status eyas_task_set_folder(eyas_task *task, const char *folder);

/**
 * Sets the processors of the task; 1 by default.
 */
eyas_status eyas_task_set_cpus(eyas_task *task, double cpus);

/**
 * Sets the memory of the task, bytes.
 */
eyas_status eyas_task_set_memory(eyas_task *task, uint64_t bytes);

/**
 * Sets the disk of the task's folder, bytes.
 */
eyas_status eyas_task_set_disk(eyas_task *task, uint64_t bytes);

/**
 * Sets the amount of another resource, such as `gpu`.
 */
eyas_status eyas_task_set_resource(eyas_task *task, const char *name, uint64_t amount);

/**
 * Sets the match expression that is true for executors which may run the task.
 */
eyas_status eyas_task_set_requirements(eyas_task *task, const char *expression);

/**
 * Sets the priority. Tasks of higher priority start first.
 */
eyas_status eyas_task_set_priority(eyas_task *task, int32_t priority);

/**
 * Sets the time limit of the task, milliseconds.
 */
eyas_status eyas_task_set_timeout(eyas_task *task, uint64_t timeout_ms);

/**
 * Sets the number of retries after a failure.
 */
eyas_status eyas_task_set_retries(eyas_task *task, uint32_t retries);

/**
 * Sets the limit of captured standard output, and of standard error, bytes; 1 MiB by default.
 */
eyas_status eyas_task_set_capture(eyas_task *task, uint64_t bytes);

/**
 * Closes the description. Jobs to which it was added keep a copy.
 */
eyas_status eyas_task_close(eyas_task *task);

/**
 * The version of the library that the program runs with: `major << 16 | minor << 8 | patch`.
 */
uint32_t eyas_version(void);

/**
 * The same as text, such as `0.1.0`. The text is static.
 */
const char *eyas_version_text(void);

/**
 * Begins to write a file. `options` may be NULL; `size` is `sizeof *options`. The file appears, as
 * a whole, when the writer is closed with `eyas_writer_close()`. On success, `*writer` is a handle
 * that has to be closed with this function or with `eyas_writer_discard()`.
 */
eyas_status eyas_create(eyas_client *client,
                        const char *path,
                        const eyas_write_options *options,
                        size_t size,
                        eyas_writer **writer);

/**
 * Begins to append to a file. All that is written appears at once when the writer is closed with
 * `eyas_writer_close()`; its status is `EYAS_STATUS_CHANGED` if another client has changed the
 * file since. On success, `*writer` is a handle as that of `eyas_create()`.
 */
eyas_status eyas_append(eyas_client *client, const char *path, eyas_writer **writer);

/**
 * Begins to change a file at any offset. If there is none and `creates` is 1, a new file is begun.
 * All changes appear at once when the writer is closed with `eyas_writer_close()`; its status is
 * `EYAS_STATUS_CHANGED` if another client has changed the file since. Only chunks with changed
 * bytes are stored again, all of them by `eyas_writer_close()`, which so takes long for many
 * changes. `eyas_write()` goes on where the last write has ended, at first at the beginning. On
 * success, `*writer` is a handle as that of `eyas_create()`.
 */
eyas_status eyas_edit(eyas_client *client,
                      const char *path,
                      uint32_t creates,
                      eyas_writer **writer);

/**
 * Writes bytes at the end of what was written before. The status may be that of an earlier write
 * that has failed since; then nothing will appear, and the writer has to be closed.
 */
eyas_status eyas_write(eyas_writer *writer, const void *bytes, size_t length);

/**
 * Writes bytes at an offset, with a writer of `eyas_edit()`. Bytes between the end of the file and
 * the offset become zeros. After a failure, nothing of all changes will appear, and the writer has
 * to be closed.
 */
eyas_status eyas_write_at(eyas_writer *writer, uint64_t offset, const void *bytes, size_t length);

/**
 * Cuts the file off at this size, or appends zeros to it, with a writer of `eyas_edit()`. After a
 * failure, nothing of all changes will appear, and the writer has to be closed.
 */
eyas_status eyas_writer_set_size(eyas_writer *writer, uint64_t size_bytes);

/**
 * Makes all that was written appear, and closes the writer, also if this fails. When it returns
 * `EYAS_STATUS_OK`, the file is on the disks of a quorum of the nodes that should have it. After
 * `EYAS_STATUS_TIMED_OUT`, the writer is not closed yet, and the work goes on: call this again to
 * wait for it, or `eyas_writer_discard()` to end it.
 */
eyas_status eyas_writer_close(eyas_writer *writer);

/**
 * Closes the writer. Nothing that was written appears, unless `eyas_writer_close()` has begun to
 * make it appear.
 */
eyas_status eyas_writer_discard(eyas_writer *writer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* EYAS_H */
