//! `http`, `https` and `s3` URLs, through OpenDAL: one kind of operator for each, with one pool of
//! connections for all.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use eyas_types::{FileMode, ObjectSpec, Version};
use futures_util::StreamExt;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use opendal::options::{ListOptions, ReaderOptions, WriteOptions};
use opendal::raw::oio::ReadStream;
use opendal::{
    Buffer, ErrorKind, HttpBody, HttpTransport, HttpTransporter, Metadata, OperationContext,
    Operator, services,
};
use opendal_http_transport_reqwest::ReqwestTransport;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::sink::{RANGE_BYTES, Sink};
use super::{Tries, blocking};
use crate::checksum::Checksum;
use crate::emulation::Limits;
use crate::error::{StorageError, StorageErrorKind};
use crate::holes::is_zeros;
use crate::url::{SourceUrl, text_of};

/// Timeout of connecting, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A server that sent nothing for this time is reported in the log.
const NOTICED_SILENCE: Duration = Duration::from_secs(5);

/// Maximum number of buckets whose operators are kept. When it is reached, all are created anew.
const MAX_OPERATORS: usize = 64;

/// Maximum number of buffers between the network and the disk.
const MAX_BUFFERS_AHEAD: usize = 8;

/// Ranges or parts in progress at the same time. With [`RANGE_BYTES`], this bounds the memory.
const CONCURRENT_RANGES: usize = 4;

/// Zeros that follow each other are passed on together, up to this size: the borders of what a
/// server sends are not those of the blocks of a disk.
const ZEROS_TOGETHER: u64 = 4 << 20;

/// S3 accepts up to 10,000 parts.
const MAX_PARTS: u64 = 9_000;

/// Path of the page in an operator whose transport has the full URL.
const PAGE: &str = "page";

/// The connections, and an operator for each bucket.
pub(super) struct Remote {
    /// A try has failed if the server sent nothing for this time.
    silence: Duration,
    transport: OnceLock<Result<ReqwestTransport, StorageError>>,
    buckets: Mutex<HashMap<String, Operator>>,
}

impl Remote {
    pub fn new(silence: Duration) -> Self {
        Remote { silence, transport: OnceLock::new(), buckets: Mutex::default() }
    }

    /// The current version of `url`.
    pub async fn stat(&self, url: &str) -> Result<Version, StorageError> {
        self.stat_within(url, &mut Tries::default()).await
    }

    async fn stat_within(&self, url: &str, tries: &mut Tries) -> Result<Version, StorageError> {
        let (operator, path) = self.operator(url, None)?;
        loop {
            match self.hear(url, operator.stat(path)).await {
                Ok(metadata) => return version(url, &metadata),
                Err(error) => tries.again(read_error(url, &error)).await?,
            }
        }
    }

    /// Reads the rest of the object at the version of `spec`. The memory is bounded by a few
    /// ranges. A blocking thread writes to the disk while the next bytes arrive.
    pub async fn read<S: Sink + Send + 'static>(
        &self,
        spec: &ObjectSpec,
        into: S,
        limits: &Limits,
    ) -> Result<Checksum, StorageError> {
        let range_bytes = into.range_bytes().filter(|range| spec.size_bytes() > 2 * *range as u64);
        let mut writer = Writer::start(into);
        let mut tries = Tries::default();
        loop {
            let read = self.read_once(spec, (&mut writer, range_bytes), limits, &mut tries);
            match read.await {
                Ok(()) => return writer.finish().await,
                // The error of the writer says more than that the writer is gone.
                Err(error) if writer.is_gone() => {
                    return Err(writer.finish().await.err().unwrap_or(error));
                }
                Err(error) => tries.again(error).await?,
            }
        }
    }

    /// One try, including the requests that check the version.
    async fn read_once(
        &self,
        spec: &ObjectSpec,
        (writer, range_bytes): (&mut Writer, Option<usize>),
        limits: &Limits,
        tries: &mut Tries,
    ) -> Result<(), StorageError> {
        let url = text_of(&spec.source)?;
        let (operator, path) = self.operator(url, Some(spec.size_bytes()))?;
        let is_s3 = matches!(SourceUrl::of(&spec.source)?, SourceUrl::S3 { .. });
        // A weak tag never matches in a condition (RFC 9110 §13.1.1), and conditions on dates are
        // not reliable.
        let if_match = match &spec.version {
            Version::Etag { etag, .. } if !etag.starts_with("W/") => Some(etag.clone()),
            _ => None,
        };
        if if_match.is_none() {
            self.check(spec, tries).await?;
        }
        // A web server may ignore ranges, so its pages are read from the start in one request.
        let offset = if is_s3 { writer.sent_bytes } else { 0 };
        let chunk = range_bytes.filter(|_| is_s3);
        let concurrent = if chunk.is_some() { CONCURRENT_RANGES } else { 1 };
        // Bytes that were received before.
        let mut to_skip = writer.sent_bytes - offset;
        let is_conditional = if_match.is_some();
        if offset < spec.size_bytes() || spec.size_bytes() == 0 {
            let options = ReaderOptions { if_match, chunk, concurrent, ..Default::default() };
            let reader = operator
                .reader_options(path, options)
                .await
                .map_err(|error| read_error(url, &error))?;
            let stream = match offset {
                0 => self.hear(url, reader.into_stream(..)).await,
                _ => self.hear(url, reader.into_stream(offset..spec.size_bytes())).await,
            };
            let mut stream = stream.map_err(|error| read_error(url, &error))?;
            while let Some(buffer) = self.hear(url, stream.next()).await {
                let buffer = buffer.map_err(|error| read_error(url, &error))?;
                let skipped = to_skip.min(buffer.len() as u64);
                limits.read(skipped).await;
                let buffer = buffer.slice(skipped as usize..);
                to_skip -= skipped;
                if buffer.len() as u64 > spec.size_bytes() - writer.sent_bytes {
                    return Err(StorageError::changed(url, "it became longer"));
                }
                limits.read(buffer.len() as u64).await;
                writer.send(buffer).await?;
            }
        }
        if writer.sent_bytes < spec.size_bytes() {
            let message = format!(
                "`{url}` ended after {} of its {} bytes",
                writer.sent_bytes,
                spec.size_bytes()
            );
            return Err(StorageError::new(StorageErrorKind::Unreachable, message));
        }
        // S3 checks the tag with every answer. Web servers may ignore the condition.
        if is_s3 && is_conditional { Ok(()) } else { self.check(spec, tries).await }
    }

    async fn check(&self, spec: &ObjectSpec, tries: &mut Tries) -> Result<(), StorageError> {
        match self.stat_within(text_of(&spec.source)?, tries).await? {
            now if now == spec.version => Ok(()),
            _ => Err(StorageError::changed(&spec.source, "its tag, date or size is different")),
        }
    }

    /// URLs of a bucket's objects that begin with `prefix`.
    pub async fn list(&self, prefix: &str) -> Result<Vec<String>, StorageError> {
        let wrong = || {
            let message =
                format!("`{prefix}` is no place in a bucket: write s3://bucket/ and a pattern");
            StorageError::new(StorageErrorKind::Invalid, message)
        };
        let (bucket, key) =
            prefix.strip_prefix("s3://").and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
        if bucket.is_empty() {
            return Err(wrong());
        }
        let operator = self.bucket(bucket, prefix)?;
        let mut tries = Tries::default();
        loop {
            match self.list_once(&operator, bucket, key).await {
                Ok(found) => return Ok(found),
                Err(error) => tries.again(remote_error("list", prefix, &error)).await?,
            }
        }
    }

    async fn list_once(
        &self,
        operator: &Operator,
        bucket: &str,
        key: &str,
    ) -> opendal::Result<Vec<String>> {
        let options = ListOptions { recursive: true, ..Default::default() };
        let from = if key.is_empty() { "/" } else { key };
        let url = format!("s3://{bucket}/{key}");
        let mut entries = self.hear(&url, operator.lister_options(from, options)).await?;
        let mut found = Vec::new();
        while let Some(entry) = self.hear(&url, entries.next()).await {
            let entry = entry?;
            if entry.metadata().is_file() {
                found.push(format!("s3://{bucket}/{}", entry.path()));
            }
        }
        Ok(found)
    }

    /// Waits for an answer of a server, and logs if this takes long.
    async fn hear<T>(&self, url: &str, answer: impl IntoFuture<Output = T>) -> T {
        let mut answer = std::pin::pin!(answer.into_future());
        match tokio::time::timeout(NOTICED_SILENCE, &mut answer).await {
            Ok(answer) => answer,
            Err(_) => {
                let silence = self.silence.as_secs();
                tracing::warn!(
                    "waiting for `{url}`: nothing has come for {} s; after {silence} s it is \
                     asked again",
                    NOTICED_SILENCE.as_secs()
                );
                answer.await
            }
        }
    }

    /// Writes `file` to a bucket. The object appears when its last byte is written, if `may_appear`
    /// returns `true` at that time.
    pub async fn put(
        &self,
        file: &Path,
        url: &str,
        limits: &Limits,
        may_appear: impl Fn() -> bool,
    ) -> Result<ObjectSpec, StorageError> {
        let mut tries = Tries::default();
        let mode = loop {
            match self.put_once(file, url, limits, &may_appear).await {
                Ok(mode) => break mode,
                Err(error) => tries.again(error).await?,
            }
        };
        Ok(ObjectSpec { source: url.into(), version: self.stat(url).await?, mode })
    }

    async fn put_once(
        &self,
        file: &Path,
        url: &str,
        limits: &Limits,
        may_appear: impl Fn() -> bool,
    ) -> Result<FileMode, StorageError> {
        let (operator, key) = self.operator(url, None)?;
        let path = file.to_path_buf();
        let unreadable = move |error: std::io::Error| {
            StorageError::local(format!("cannot read `{}`", path.display()), error)
        };
        let (path, failed) = (file.to_path_buf(), unreadable.clone());
        let (mut file, metadata) = blocking(move || {
            let file = File::open(&path).map_err(&failed)?;
            let metadata = file.metadata().map_err(&failed)?;
            Ok((file, metadata))
        })
        .await?;
        let size_bytes = metadata.len();
        let part_bytes = RANGE_BYTES.max(size_bytes.div_ceil(MAX_PARTS) as usize);
        let options = WriteOptions {
            chunk: Some(part_bytes),
            concurrent: CONCURRENT_RANGES,
            ..Default::default()
        };
        let mut writer = operator
            .writer_options(key, options)
            .await
            .map_err(|error| write_error(url, &error))?;
        let written = async {
            loop {
                let failed = unreadable.clone();
                let (reading, part) = blocking(move || {
                    let mut part = Vec::with_capacity(RANGE_BYTES.min(size_bytes as usize + 1));
                    (&file).take(RANGE_BYTES as u64).read_to_end(&mut part).map_err(failed)?;
                    Ok((file, part))
                })
                .await?;
                file = reading;
                if part.is_empty() {
                    break;
                }
                limits.write(part.len() as u64).await;
                writer.write(part).await.map_err(|error| write_error(url, &error))?;
            }
            if !may_appear() {
                return Err(StorageError::new(
                    StorageErrorKind::Withdrawn,
                    "it is no longer wanted",
                ));
            }
            writer.close().await.map_err(|error| write_error(url, &error))
        };
        if let Err(error) = written.await {
            // Parts of an incomplete upload cost money. If this fails as well, the rules of the
            // bucket have to clean up.
            let _ = writer.abort().await;
            return Err(error);
        }
        Ok(FileMode::of_source(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions())))
    }

    /// The operator for `url`, and the path of the object in it. `size_bytes` is the size of a
    /// page, if it is known.
    fn operator<'a>(
        &self,
        url: &'a str,
        size_bytes: Option<u64>,
    ) -> Result<(Operator, &'a str), StorageError> {
        match SourceUrl::of(url.as_bytes())? {
            SourceUrl::Http(_) => Ok((self.page(url, size_bytes)?, PAGE)),
            SourceUrl::S3 { bucket, key } => Ok((self.bucket(bucket, url)?, key)),
            SourceUrl::File(_) | SourceUrl::Cluster(_) | SourceUrl::Named(_) => {
                unreachable!("they are not remote")
            }
        }
    }

    /// OpenDAL would encode the path again and drop the query. So the transport sends the URL as
    /// the user wrote it.
    fn page(&self, url: &str, size_bytes: Option<u64>) -> Result<Operator, StorageError> {
        let wrong = |error: String| {
            StorageError::new(StorageErrorKind::Invalid, format!("`{url}` is no URL: {error}"))
        };
        let uri = url.split('#').next().unwrap_or(url).parse::<http::Uri>();
        let uri =
            uri.map_err(|error| wrong(format!("{error}; write spaces and the like as %20")))?;
        let builder = services::Http::default().endpoint("http://eyas.invalid");
        let operator = Operator::new(builder).map_err(|error| wrong(error.to_string()))?;
        let transport =
            HttpTransporter::new(Page { uri, size_bytes, transport: self.transport()? });
        Ok(operator.with_context(OperationContext::new().with_http_transport(transport)))
    }

    fn bucket(&self, bucket: &str, url: &str) -> Result<Operator, StorageError> {
        // No code under this lock leaves the map half-way.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(operator) = buckets.get(bucket) {
            return Ok(operator.clone());
        }
        let mut builder = services::S3::default().bucket(bucket);
        if let Some(endpoint) =
            std::env::var("AWS_ENDPOINT_URL_S3").ok().filter(|endpoint| !endpoint.is_empty())
        {
            builder = builder.endpoint(&endpoint);
        }
        if !is_set("AWS_REGION") && !is_set("AWS_DEFAULT_REGION") {
            // The default of the AWS tools for endpoints that are not Amazon's.
            builder = builder.region("us-east-1");
        }
        if is_set("AWS_NO_SIGN_REQUEST") {
            builder = builder.skip_signature();
        }
        let operator = Operator::new(builder).map_err(|error| read_error(url, &error))?;
        let transport = HttpTransporter::new(self.transport()?);
        let operator =
            operator.with_context(OperationContext::new().with_http_transport(transport));
        if buckets.len() >= MAX_OPERATORS {
            buckets.clear();
        }
        buckets.insert(bucket.to_string(), operator.clone());
        Ok(operator)
    }

    fn transport(&self) -> Result<ReqwestTransport, StorageError> {
        self.transport.get_or_init(|| connect(self.silence)).clone()
    }
}

fn connect(silence: Duration) -> Result<ReqwestTransport, StorageError> {
    // Fails if the process has a default provider already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = || {
        reqwest::Client::builder()
            .user_agent(concat!("eyas/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(silence)
    };
    let built = client().build().or_else(|error| {
        tracing::warn!(
            %error,
            "no certificates on this node: https will not work; install ca-certificates"
        );
        client().tls_certs_only([]).build()
    });
    built.map(ReqwestTransport::new).map_err(|error| {
        StorageError::new(StorageErrorKind::Local, format!("cannot set up http: {error}"))
    })
}

/// A transport that sends every request to one URL.
struct Page {
    uri: http::Uri,
    /// The size, if an earlier answer has given it: OpenDAL reads no answer without one.
    size_bytes: Option<u64>,
    transport: ReqwestTransport,
}

impl HttpTransport for Page {
    async fn fetch(
        &self,
        request: http::Request<Buffer>,
    ) -> opendal::Result<http::Response<HttpBody>> {
        if request.method() == Method::HEAD {
            return self.describe(request).await;
        }
        let mut answer = self.send(request).await?;
        if let (None, Some(size_bytes)) = (size_in(answer.headers()), self.size_bytes) {
            answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(size_bytes));
        }
        Ok(answer)
    }
}

impl Page {
    async fn send(
        &self,
        mut request: http::Request<Buffer>,
    ) -> opendal::Result<http::Response<HttpBody>> {
        *request.uri_mut() = self.uri.clone();
        self.transport.fetch(request).await
    }

    /// Answers a HEAD request. Many servers refuse HEAD, as with URLs that are signed for GET, or
    /// give no size. Then the first byte of the page is requested instead; if that answer has no
    /// size either, the page is read to its end.
    async fn describe(
        &self,
        request: http::Request<Buffer>,
    ) -> opendal::Result<http::Response<HttpBody>> {
        let answer = self.send(request.clone()).await?;
        let status = answer.status();
        let is_overloaded = status == StatusCode::TOO_MANY_REQUESTS
            || status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED;
        if is_overloaded
            || status.is_success() && size_in(answer.headers()).is_some_and(|bytes| bytes > 0)
        {
            return Ok(answer);
        }
        let mut get = request;
        *get.method_mut() = Method::GET;
        get.headers_mut().insert(RANGE, HeaderValue::from_static("bytes=0-0"));
        let mut answer = self.send(get.clone()).await?;
        // An empty page has no first byte, and not every server tells the size of the whole with a
        // part.
        let is_part = answer.status() == StatusCode::PARTIAL_CONTENT;
        if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE
            || is_part && size_in(answer.headers()).is_none()
        {
            get.headers_mut().remove(RANGE);
            answer = self.send(get).await?;
        }
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let (mut head, body) = answer.into_parts();
        let size_bytes = match size_in(&head.headers) {
            Some(size_bytes) => size_bytes,
            None => length_of(body).await?,
        };
        head.status = StatusCode::OK;
        head.headers.remove(CONTENT_RANGE);
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(size_bytes));
        Ok(http::Response::from_parts(head, HttpBody::new(futures_util::stream::empty(), None)))
    }
}

/// The size of the whole page in the headers of an answer.
fn size_in(headers: &HeaderMap) -> Option<u64> {
    match headers.get(CONTENT_RANGE) {
        Some(range) => range.to_str().ok()?.rsplit('/').next()?.parse().ok(),
        None => headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok(),
    }
}

async fn length_of(mut body: HttpBody) -> opendal::Result<u64> {
    let mut bytes = 0;
    loop {
        match body.read().await?.len() as u64 {
            0 => return Ok(bytes),
            more => bytes += more,
        }
    }
}

/// A sink on a blocking thread.
struct Writer {
    pieces: mpsc::Sender<Piece>,
    sink: JoinHandle<Result<Option<Checksum>, StorageError>>,
    sent_bytes: u64,
}

enum Piece {
    Bytes(Buffer),
    Finish,
}

impl Writer {
    fn start<S: Sink + Send + 'static>(mut into: S) -> Self {
        let sent_bytes = into.written_bytes();
        let (pieces, mut incoming) = mpsc::channel(MAX_BUFFERS_AHEAD);
        let sink = tokio::task::spawn_blocking(move || {
            // Zeros that the sink does not have yet.
            let mut zeros = 0;
            while let Some(piece) = incoming.blocking_recv() {
                match piece {
                    Piece::Bytes(buffer) => {
                        for bytes in buffer {
                            if is_zeros(&bytes) {
                                zeros += bytes.len() as u64;
                            } else {
                                skip(&mut into, &mut zeros)?;
                                into.write(&bytes)?;
                            }
                            if zeros >= ZEROS_TOGETHER {
                                skip(&mut into, &mut zeros)?;
                            }
                        }
                    }
                    Piece::Finish => {
                        skip(&mut into, &mut zeros)?;
                        return into.finish().map(Some);
                    }
                }
            }
            // The reader gave up. The sink is dropped and leaves nothing behind.
            Ok(None)
        });
        Writer { pieces, sink, sent_bytes }
    }

    async fn send(&mut self, buffer: Buffer) -> Result<(), StorageError> {
        self.sent_bytes += buffer.len() as u64;
        let sent = self.pieces.send(Piece::Bytes(buffer)).await;
        sent.map_err(|_| {
            StorageError::new(StorageErrorKind::Local, "the local file could not be written")
        })
    }

    fn is_gone(&self) -> bool {
        self.pieces.is_closed()
    }

    async fn finish(self) -> Result<Checksum, StorageError> {
        // If the writer is gone, its result says why.
        let _ = self.pieces.send(Piece::Finish).await;
        match self.sink.await {
            Ok(result) => result?
                .ok_or_else(|| StorageError::new(StorageErrorKind::Local, "the read was given up")),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {
                Err(StorageError::new(StorageErrorKind::Local, "the process is shutting down"))
            }
        }
    }
}

/// Passes on zeros. They take no space on a disk, though the server has sent them.
fn skip(into: &mut impl Sink, zeros: &mut u64) -> Result<(), StorageError> {
    match std::mem::take(zeros) {
        0 => Ok(()),
        bytes => into.skip(bytes),
    }
}

fn version(url: &str, metadata: &Metadata) -> Result<Version, StorageError> {
    let size_bytes = metadata.content_length();
    if let Some(etag) = metadata.etag().filter(|etag| !etag.is_empty()) {
        return Ok(Version::Etag { etag: etag.to_string(), size_bytes });
    }
    let modified = metadata.last_modified().map(|time| time.into_inner().as_nanosecond());
    match modified.and_then(|ns| i64::try_from(ns).ok()) {
        Some(mtime_ns) => Ok(Version::Modified { mtime_ns, size_bytes }),
        None => Err(StorageError::new(
            StorageErrorKind::Invalid,
            format!(
                "`{url}` has neither a tag nor a date, so a change of it could not be noticed: \
                 copy it to a file first"
            ),
        )),
    }
}

fn read_error(url: &str, error: &opendal::Error) -> StorageError {
    if error.kind() == ErrorKind::ConditionNotMatch {
        return StorageError::changed(url, "its tag is different");
    }
    remote_error("read", url, error)
}

fn write_error(url: &str, error: &opendal::Error) -> StorageError {
    remote_error("write", url, error)
}

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| !value.is_empty())
}

fn remote_error(doing: &str, url: &str, error: &opendal::Error) -> StorageError {
    let is_s3 = url.starts_with("s3://");
    let (kind, advice) = match error.kind() {
        ErrorKind::NotFound => (StorageErrorKind::NotFound, "check the URL"),
        ErrorKind::PermissionDenied if is_s3 => (
            StorageErrorKind::Denied,
            "check the credentials (AWS_ACCESS_KEY_ID and the like) on every node",
        ),
        ErrorKind::PermissionDenied => (
            StorageErrorKind::Denied,
            "the server refuses it: check the URL, and whether a signature in it has expired",
        ),
        ErrorKind::RateLimited => {
            (StorageErrorKind::Unreachable, "the server asks for fewer requests")
        }
        _ if error.is_temporary() => {
            (StorageErrorKind::Unreachable, "check the network and the server")
        }
        _ if is_s3 => (StorageErrorKind::Invalid, "check the URL, AWS_REGION and AWS_ENDPOINT_URL"),
        _ => (StorageErrorKind::Invalid, "check the URL"),
    };
    let lacks_credentials = is_s3
        && matches!(kind, StorageErrorKind::Denied | StorageErrorKind::Invalid)
        && !is_set("AWS_ACCESS_KEY_ID")
        && !is_set("AWS_NO_SIGN_REQUEST");
    let advice = if lacks_credentials {
        "AWS_ACCESS_KEY_ID is not set here: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and \
         AWS_REGION, AWS_ENDPOINT_URL where needed) where `eyas` submits jobs and where `eyas \
         start executor` runs on each node, or AWS_NO_SIGN_REQUEST=true for a public bucket; then \
         start the executors again"
    } else {
        advice
    };
    let mut why = error.message().trim().to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        why = format!("{why}: {cause}");
        source = cause.source();
    }
    if why.is_empty() {
        // The answer to a HEAD request has no body with an explanation.
        why = error.kind().to_string();
    }
    StorageError::new(kind, format!("cannot {doing} `{url}`: {why}; {advice}"))
}
