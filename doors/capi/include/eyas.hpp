/*
 * C++ (17) around eyas.h: handles that close themselves, exceptions instead of statuses, std::string.
 *
 * Every class can be moved and not copied. What eyas.h says of threads and timeouts holds here, too.
 */

#ifndef EYAS_HPP
#define EYAS_HPP

#include <eyas.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace eyas {

/* A function failed. what() says what failed, and what to do. */
class error : public std::runtime_error {
public:
    explicit error(eyas_status status) : std::runtime_error(eyas_error_message()), status_(status) {}
    eyas_status status() const noexcept { return status_; }

private:
    eyas_status status_;
};

/* Other workers have processed a block: its results must be discarded. */
class discarded : public error {
public:
    discarded() : error(EYAS_STATUS_DISCARDED) {}
};

inline void check(eyas_status status)
{
    if (status == EYAS_STATUS_DISCARDED)
        throw discarded();
    if (status != EYAS_STATUS_OK)
        throw error(status);
}

/* Whether there is a further result: false at the end. */
inline bool has_next(eyas_status status)
{
    if (status == EYAS_STATUS_END)
        return false;
    check(status);
    return true;
}

template <class T, eyas_status (*Close)(T *)> struct closer {
    void operator()(T *handle) const noexcept { Close(handle); }
};

template <class T, eyas_status (*Close)(T *)> using handle = std::unique_ptr<T, closer<T, Close>>;

/* A task, or an array of tasks. Each setter returns the task, so that calls can follow each other. */
class task {
public:
    explicit task(const std::vector<std::string> &words)
    {
        std::vector<const char *> texts;
        for (const std::string &word : words)
            texts.push_back(word.c_str());
        eyas_task *opened;
        check(eyas_task_open(texts.data(), texts.size(), &opened));
        handle_.reset(opened);
    }
    task &id(const std::string &id) { return done(eyas_task_set_id(get(), id.c_str())); }
    task &item(const std::string &item)
    {
        const char *column = item.c_str();
        return done(eyas_task_add_item(get(), &column, 1));
    }
    task &each(const std::string &pattern) { return done(eyas_task_add_each(get(), pattern.c_str())); }
    task &each_block(const std::string &pattern) { return done(eyas_task_add_each_block(get(), pattern.c_str())); }
    task &array(const std::string &range) { return done(eyas_task_set_array(get(), range.c_str())); }
    task &input(const std::string &path) { return done(eyas_task_add_input(get(), path.c_str(), nullptr)); }
    task &input_of(const std::string &id) { return done(eyas_task_add_input_of(get(), id.c_str(), nullptr)); }
    task &input_into(const std::string &id, const std::string &into)
    {
        return done(eyas_task_add_input_into(get(), id.c_str(), nullptr, into.c_str()));
    }
    task &output(const std::string &file, const std::string &to)
    {
        return done(eyas_task_add_output(get(), file.c_str(), to.c_str(), 0));
    }
    task &env(const std::string &name, const std::string &value)
    {
        return done(eyas_task_set_env(get(), name.c_str(), value.c_str()));
    }
    task &cpus(double cpus) { return done(eyas_task_set_cpus(get(), cpus)); }
    task &memory(std::uint64_t bytes) { return done(eyas_task_set_memory(get(), bytes)); }
    task &retries(std::uint32_t retries) { return done(eyas_task_set_retries(get(), retries)); }
    eyas_task *get() const noexcept { return handle_.get(); }

private:
    task &done(eyas_status status)
    {
        check(status);
        return *this;
    }
    handle<eyas_task, eyas_task_close> handle_;
};

/* A job that is not submitted yet. */
class job {
public:
    explicit job(const std::string &name)
    {
        eyas_job *opened;
        check(eyas_job_open(name.c_str(), &opened));
        handle_.reset(opened);
    }
    job &add(const task &task)
    {
        check(eyas_job_add(get(), task.get()));
        return *this;
    }
    eyas_job *get() const noexcept { return handle_.get(); }

private:
    handle<eyas_job, eyas_job_close> handle_;
};

/* Results of a job, in the order in which its tasks end. */
class results {
public:
    explicit results(eyas_results *opened) : handle_(opened) {}
    /* The next result; nothing at the end. What it points to is valid until the next call. */
    std::optional<eyas_task_result> next(std::uint64_t timeout_ms = EYAS_FOREVER)
    {
        eyas_task_result result;
        if (!has_next(eyas_results_next(handle_.get(), timeout_ms, &result, sizeof result)))
            return std::nullopt;
        return result;
    }

private:
    handle<eyas_results, eyas_results_close> handle_;
};

/* A file that is open for reading. */
class reader {
public:
    explicit reader(eyas_reader *opened) : handle_(opened) {}
    eyas_file_info info() const
    {
        eyas_file_info info;
        check(eyas_reader_info(handle_.get(), &info, sizeof info));
        return info;
    }
    /* Up to `length` bytes from `offset`. Returns their number, which is less only at the end of the file. */
    std::size_t read(std::uint64_t offset, void *buffer, std::size_t length) const
    {
        std::size_t count;
        check(eyas_read(handle_.get(), offset, buffer, length, &count));
        return count;
    }
    /* The whole file. */
    std::string read() const
    {
        std::string content(info().size_bytes, '\0');
        content.resize(read(0, content.data(), content.size()));
        return content;
    }

private:
    handle<eyas_reader, eyas_reader_close> handle_;
};

/* A replica of a chunk of a file; without a node, zeros that no node stores. */
struct block_place {
    std::uint64_t offset;
    std::uint64_t size_bytes;
    /* The number of the chunk's block: what a program that processes records reads together. */
    std::uint64_t block;
    std::string node;
    /* Empty while the node is not connected. */
    std::string host;
    bool is_near;
};

/* A file that is being written. Without publish(), nothing of it appears. */
class writer {
public:
    explicit writer(eyas_writer *opened) : handle_(opened) {}
    writer &write(std::string_view bytes)
    {
        check(eyas_write(handle_.get(), bytes.data(), bytes.size()));
        return *this;
    }
    /* At an offset, of a file that client::edit() has opened. */
    writer &write_at(std::uint64_t offset, std::string_view bytes)
    {
        check(eyas_write_at(handle_.get(), offset, bytes.data(), bytes.size()));
        return *this;
    }
    writer &set_size(std::uint64_t size_bytes)
    {
        check(eyas_writer_set_size(handle_.get(), size_bytes));
        return *this;
    }
    /* If this takes too long, it can be called again. */
    void publish()
    {
        eyas_status closed = eyas_writer_close(handle_.get());
        if (closed != EYAS_STATUS_TIMED_OUT)
            handle_.release();
        check(closed);
    }

private:
    handle<eyas_writer, eyas_writer_discard> handle_;
};

/* A block of a run: the pieces that one worker processes and commits together. */
class block {
public:
    explicit block(eyas_block *opened) : handle_(opened) {}
    /* The next piece; nothing at the end. What it points to is valid until the next call. */
    std::optional<eyas_piece> next(std::uint64_t timeout_ms = EYAS_FOREVER)
    {
        eyas_piece piece;
        if (!has_next(eyas_block_next(handle_.get(), timeout_ms, &piece, sizeof piece)))
            return std::nullopt;
        return piece;
    }
    /* Commits the output for all pieces. False if it does not count, because others have processed them. */
    bool commit(std::string_view output)
    {
        eyas_status status = eyas_block_commit(handle_.get(), output.data(), output.size());
        if (status == EYAS_STATUS_DISCARDED)
            return false;
        check(status);
        return true;
    }

private:
    handle<eyas_block, eyas_block_close> handle_;
};

/* A run over the blocks of files. */
class run {
public:
    explicit run(eyas_run *opened) : handle_(opened) {}
    std::string address() const
    {
        const char *address;
        check(eyas_run_address(handle_.get(), &address));
        return address;
    }
    block begin() const
    {
        eyas_block *opened;
        check(eyas_block_open(handle_.get(), &opened));
        return block(opened);
    }
    eyas_run_info wait(std::uint64_t timeout_ms = EYAS_FOREVER) const
    {
        eyas_run_info info;
        check(eyas_run_wait(handle_.get(), timeout_ms, &info, sizeof info));
        return info;
    }
    std::string output(std::uint32_t number) const
    {
        const char *path;
        check(eyas_run_output(handle_.get(), number, &path));
        return path;
    }
    void end() const { check(eyas_run_end(handle_.get())); }

private:
    handle<eyas_run, eyas_run_close> handle_;
};

/* A connection to a cluster. */
class client {
public:
    /* The cluster of the command `eyas` without options. */
    client() : client(static_cast<const char *>(nullptr)) {}
    /* A cluster by its name. */
    explicit client(const char *name)
    {
        eyas_client *opened;
        check(eyas_connect(name, &opened));
        handle_.reset(opened);
    }
    /* The cluster of an access file. */
    static client with_access(const std::string &path)
    {
        eyas_client *opened;
        check(eyas_connect_access(path.c_str(), &opened));
        return client(opened);
    }
    void set_timeout(std::uint64_t timeout_ms) { check(eyas_client_set_timeout(get(), timeout_ms)); }

    std::uint32_t submit(const job &job)
    {
        std::uint32_t id;
        check(eyas_job_submit(get(), job.get(), &id));
        return id;
    }
    /* Submits the text of a job file. */
    std::uint32_t submit(std::string_view text)
    {
        std::uint32_t id;
        check(eyas_submit_text(get(), text.data(), text.size(), &id));
        return id;
    }
    eyas_job_info wait(std::uint32_t job, std::uint64_t timeout_ms = EYAS_FOREVER)
    {
        eyas_job_info info;
        check(eyas_job_wait(get(), job, timeout_ms, &info, sizeof info));
        return info;
    }
    void cancel(std::uint32_t job) { check(eyas_job_cancel(get(), job)); }
    std::string explain(std::uint32_t job, std::uint32_t task)
    {
        char *text;
        check(eyas_task_explain(get(), job, task, &text));
        std::unique_ptr<char, void (*)(char *)> owned(text, eyas_text_free);
        return owned.get();
    }
    eyas::results results(std::uint32_t job)
    {
        eyas_results *opened;
        check(eyas_results_open(get(), job, &opened));
        return eyas::results(opened);
    }

    reader open(const std::string &path)
    {
        eyas_reader *opened;
        check(eyas_open(get(), path.c_str(), &opened));
        return reader(opened);
    }
    writer create(const std::string &path, const eyas_write_options *options = nullptr)
    {
        eyas_writer *opened;
        check(eyas_create(get(), path.c_str(), options, sizeof *options, &opened));
        return writer(opened);
    }
    writer append(const std::string &path)
    {
        eyas_writer *opened;
        check(eyas_append(get(), path.c_str(), &opened));
        return writer(opened);
    }
    /* Changes of a file at any offset; with `creates`, of a new file if there is none. */
    writer edit(const std::string &path, bool creates = false)
    {
        eyas_writer *opened;
        check(eyas_edit(get(), path.c_str(), creates, &opened));
        return writer(opened);
    }
    eyas_file_info stat(const std::string &path)
    {
        eyas_file_info info;
        check(eyas_stat(get(), path.c_str(), &info, sizeof info));
        return info;
    }
    /* The entries of a folder; with those of its subfolders if `recursive`. */
    std::vector<std::pair<std::string, eyas_file_info>> list(const std::string &folder, bool recursive = false)
    {
        eyas_listing *opened;
        check(eyas_list(get(), folder.c_str(), recursive, &opened));
        handle<eyas_listing, eyas_listing_close> listing(opened);
        std::vector<std::pair<std::string, eyas_file_info>> files;
        const char *name;
        eyas_file_info info;
        while (has_next(eyas_listing_next(opened, &name, &info, sizeof info)))
            files.emplace_back(name, info);
        return files;
    }
    /* Where the chunks of a file are, in order. A chunk comes once for each of its replicas. */
    std::vector<block_place> places(const std::string &path)
    {
        eyas_places *opened;
        check(eyas_places_open(get(), path.c_str(), &opened));
        handle<eyas_places, eyas_places_close> places(opened);
        std::vector<block_place> found;
        eyas_block_place place;
        while (has_next(eyas_places_next(opened, &place, sizeof place)))
            found.push_back({place.offset, place.size_bytes, place.block, place.node ? place.node : "",
                             place.host ? place.host : "", place.is_near != 0});
        return found;
    }
    void rename(const std::string &from, const std::string &to)
    {
        check(eyas_rename(get(), from.c_str(), to.c_str()));
    }
    /* Renames, and replaces what has the new name. */
    void replace(const std::string &from, const std::string &to)
    {
        check(eyas_replace(get(), from.c_str(), to.c_str()));
    }
    void make_folder(const std::string &path) { check(eyas_make_folder(get(), path.c_str())); }
    void remove_folder(const std::string &path) { check(eyas_remove_folder(get(), path.c_str())); }
    void remove(const std::string &path) { check(eyas_remove(get(), path.c_str())); }

    void make_symbolic_link(const std::string &path, const std::string &target)
    {
        check(eyas_make_symbolic_link(get(), path.c_str(), target.c_str()));
    }
    std::string read_symbolic_link(const std::string &path)
    {
        char *target;
        check(eyas_read_symbolic_link(get(), path.c_str(), &target));
        std::unique_ptr<char, void (*)(char *)> owned(target, eyas_text_free);
        return owned.get();
    }
    void set_mode(const std::string &path, std::uint32_t mode) { check(eyas_set_mode(get(), path.c_str(), mode)); }
    void set_owner(const std::string &path, std::uint32_t uid, std::uint32_t gid = EYAS_UNCHANGED)
    {
        check(eyas_set_owner(get(), path.c_str(), uid, gid));
    }
    void set_modified(const std::string &path, std::uint64_t modified_ns)
    {
        check(eyas_set_modified(get(), path.c_str(), modified_ns));
    }
    void set_attribute(const std::string &path, const std::string &name, std::string_view value,
                       std::uint32_t condition = 0)
    {
        check(eyas_set_attribute(get(), path.c_str(), name.c_str(), value.data(), value.size(),
                                 condition));
    }
    /* The value of a named attribute; nothing if there is none of this name. */
    std::optional<std::string> attribute(const std::string &path, const std::string &name)
    {
        std::string value(64 << 10, '\0');
        std::size_t length;
        const eyas_status status = eyas_get_attribute(get(), path.c_str(), name.c_str(),
                                                      value.data(), value.size(), &length);
        if (status == EYAS_STATUS_NO_ATTRIBUTE)
            return std::nullopt;
        check(status);
        value.resize(length);
        return value;
    }
    void remove_attribute(const std::string &path, const std::string &name)
    {
        check(eyas_remove_attribute(get(), path.c_str(), name.c_str()));
    }
    /* Names and values of the named attributes, in the order of the names. */
    std::vector<std::pair<std::string, std::string>> attributes(const std::string &path)
    {
        eyas_attributes *opened;
        check(eyas_attributes_open(get(), path.c_str(), &opened));
        handle<eyas_attributes, eyas_attributes_close> attributes(opened);
        std::vector<std::pair<std::string, std::string>> found;
        const char *name;
        const void *value;
        std::size_t length;
        while (has_next(eyas_attributes_next(opened, &name, &value, &length)))
            found.emplace_back(name, std::string(static_cast<const char *>(value), length));
        return found;
    }
    void set_quota(const std::string &folder, std::uint64_t bytes, std::uint64_t files = EYAS_NO_LIMIT)
    {
        check(eyas_set_quota(get(), folder.c_str(), bytes, files));
    }
    eyas_quota quota(const std::string &folder)
    {
        eyas_quota quota;
        check(eyas_get_quota(get(), folder.c_str(), &quota, sizeof quota));
        return quota;
    }

    /* Opens a run over files, for about this number of workers. */
    run open_run(const std::vector<std::string> &paths, std::uint32_t workers, std::uint64_t term_ms = 0)
    {
        std::vector<const char *> texts;
        for (const std::string &path : paths)
            texts.push_back(path.c_str());
        eyas_run *opened;
        check(eyas_run_open(get(), texts.data(), texts.size(), workers, term_ms, &opened));
        return run(opened);
    }
    run join_run(const std::string &address)
    {
        eyas_run *opened;
        check(eyas_run_join(get(), address.c_str(), &opened));
        return run(opened);
    }
    eyas_client *get() const noexcept { return handle_.get(); }

private:
    explicit client(eyas_client *opened) : handle_(opened) {}
    handle<eyas_client, eyas_client_close> handle_;
};

} // namespace eyas

#endif
