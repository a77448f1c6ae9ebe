//! A web server and a small part of S3 for tests, on its own port. Each connection handles one
//! request after the other.

#![allow(dead_code, reason = "each test program uses its part")]

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A page and the faults of the server with it.
#[derive(Clone, Default)]
pub struct Page {
    pub content: Vec<u8>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    /// Ignores `Range` and `If-Match`, as simple servers do.
    pub is_simple: bool,
    /// Answers GET with 403.
    pub denies_get: bool,
    /// Answers HEAD with this status, such as `403 Forbidden`.
    pub refuses_head: Option<&'static str>,
    /// Says the size in no answer: bodies are chunked.
    pub is_sizeless: bool,
    /// Answers this number of requests with 503 first.
    pub fail_first: usize,
    /// Cuts this number of bodies in the middle first.
    pub cut_first: usize,
    /// Becomes silent in the middle of this number of answers first, and keeps the connection
    /// open.
    pub silent_first: usize,
    /// Answers each GET with the head alone, and keeps the connection open.
    pub is_stuck: bool,
    /// Gets this tag after the next GET.
    pub etag_after_read: Option<String>,
}

#[derive(Default)]
pub struct State {
    pub pages: HashMap<String, Page>,
    /// `METHOD target`, in order.
    pub requests: Vec<String>,
    parts: BTreeMap<u32, Vec<u8>>,
}

#[derive(Clone)]
pub struct Web {
    pub addr: SocketAddr,
    pub state: Arc<Mutex<State>>,
}

impl Web {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let web = Web { addr: listener.local_addr().unwrap(), state: Arc::default() };
        let served = web.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let served = served.clone();
                std::thread::spawn(
                    move || while served.serve(stream.as_ref().unwrap()).is_some() {},
                );
            }
        });
        web
    }

    pub fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.addr)
    }

    pub fn put(&self, target: &str, page: Page) {
        self.state.lock().unwrap().pages.insert(target.to_string(), page);
    }

    /// Number of requests `METHOD target`, whatever the query.
    pub fn count(&self, request: &str) -> usize {
        let is_it = |seen: &&String| *seen == request || seen.starts_with(&format!("{request}?"));
        self.state.lock().unwrap().requests.iter().filter(is_it).count()
    }

    fn serve(&self, mut stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_string()),
            }
        }
        let mut words = lines[0].split(' ');
        let (method, target) = (words.next()?.to_string(), words.next()?.to_string());
        let headers: HashMap<String, String> = lines[1..]
            .iter()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_string()))
            .collect();
        let mut body =
            vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).ok()?;
        let Answer { head, body, fault } = self.answer(&method, &target, &headers, body);
        if method == "HEAD" {
            let sent = if fault == Fault::Silent { head.len() / 2 } else { head.len() };
            stream.write_all(&head.as_bytes()[..sent]).ok()?;
        } else {
            let sent = match fault {
                Fault::None => body.len(),
                Fault::Stuck => 0,
                Fault::Cut | Fault::Silent => body.len() / 2,
            };
            stream.write_all(head.as_bytes()).ok()?;
            stream.write_all(&body[..sent]).ok()?;
        }
        match fault {
            Fault::None => Some(()),
            Fault::Cut => {
                stream.shutdown(std::net::Shutdown::Both).ok()?;
                None
            }
            // Until the client gives up.
            Fault::Silent | Fault::Stuck => reader.read(&mut [0]).ok().and(None),
        }
    }

    fn answer(
        &self,
        method: &str,
        target: &str,
        headers: &HashMap<String, String>,
        body: Vec<u8>,
    ) -> Answer {
        let mut state = self.state.lock().unwrap();
        state.requests.push(format!("{method} {target}"));
        let plain = |status: &str, extra: &str, body: Vec<u8>| {
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{extra}\r\n", body.len());
            Answer { head, body, fault: Fault::None }
        };
        if method == "PUT" || method == "POST" {
            return plain_put(&mut state, method, target, body).map_or_else(
                || plain("400 Bad Request", "", vec![]),
                |(extra, body)| plain("200 OK", &extra, body),
            );
        }
        if let Some((bucket, query)) =
            target.split_once("?").filter(|(_, query)| query.contains("list-type=2"))
        {
            return plain("200 OK", "", listed(&state, bucket.trim_end_matches('/'), query).into());
        }
        let Some(page) = state.pages.get_mut(target) else {
            return plain("404 Not Found", "", vec![]);
        };
        if let Some(status) = page.refuses_head.filter(|_| method == "HEAD") {
            return plain(status, "", vec![]);
        }
        if page.denies_get && method == "GET" {
            return plain("403 Forbidden", "", b"Request has expired".to_vec());
        }
        if page.fail_first > 0 {
            page.fail_first -= 1;
            return plain("503 Service Unavailable", "", vec![]);
        }
        let mut extra = String::new();
        if let Some(etag) = &page.etag {
            extra += &format!("ETag: {etag}\r\n");
        }
        if let Some(date) = &page.last_modified {
            extra += &format!("Last-Modified: {date}\r\n");
        }
        if !page.is_simple
            && headers.get("if-match").is_some_and(|wanted| Some(wanted) != page.etag.as_ref())
        {
            return plain("412 Precondition Failed", &extra, vec![]);
        }
        let mut status = "200 OK";
        let mut content = page.content.clone();
        if method == "GET" {
            if let Some(range) = headers.get("range").filter(|_| !page.is_simple) {
                if content.is_empty() {
                    return plain(
                        "416 Range Not Satisfiable",
                        "Content-Range: bytes */0\r\n",
                        vec![],
                    );
                }
                let (first, last) = range.trim_start_matches("bytes=").split_once('-').unwrap();
                let first: usize = first.parse().unwrap();
                let last = last.parse().unwrap_or(content.len() - 1).min(content.len() - 1);
                extra += &format!("Content-Range: bytes {first}-{last}/{}\r\n", content.len());
                content = content[first..=last].to_vec();
                status = "206 Partial Content";
            }
            if let Some(etag) = page.etag_after_read.take() {
                page.etag = Some(etag);
            }
        }
        let is_cut = method == "GET" && page.cut_first > 0;
        page.cut_first -= usize::from(is_cut);
        let is_silent = page.silent_first > 0;
        page.silent_first -= usize::from(is_silent);
        let fault = match (is_cut, is_silent) {
            _ if page.is_stuck && method == "GET" => Fault::Stuck,
            (true, _) => Fault::Cut,
            (false, true) => Fault::Silent,
            (false, false) => Fault::None,
        };
        if page.is_sizeless {
            let head = format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n{extra}\r\n");
            let size = format!("{:x}\r\n", content.len());
            let body = match content.len() {
                0 => b"0\r\n\r\n".to_vec(),
                _ => [size.as_bytes(), &content, b"\r\n0\r\n\r\n"].concat(),
            };
            return Answer { head, body, fault };
        }
        Answer { fault, ..plain(status, &extra, content) }
    }
}

struct Answer {
    head: String,
    body: Vec<u8>,
    fault: Fault,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Cut,
    Silent,
    Stuck,
}

/// S3's list of a bucket's keys that begin with a prefix, two at a time.
fn listed(state: &State, bucket: &str, query: &str) -> String {
    let parameter = |name: &str| {
        let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
        Some(value.replace("%2F", "/"))
    };
    let (prefix, after) = (
        parameter("prefix").unwrap_or_default(),
        parameter("continuation-token").unwrap_or_default(),
    );
    let key = |page: &String| page.strip_prefix(bucket)?.strip_prefix('/').map(str::to_owned);
    let mut keys: Vec<_> =
        state.pages.keys().filter_map(key).filter(|key| key.starts_with(&prefix)).collect();
    keys.sort();
    keys.retain(|key| *key > after);
    let is_truncated = keys.len() > 2;
    keys.truncate(2);
    let next = keys.last().filter(|_| is_truncated);
    let next = next.map_or_else(String::new, |key| {
        format!("<NextContinuationToken>{key}</NextContinuationToken>")
    });
    let of = |key: &String| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2024-01-01T00:00:00.000Z</\
             LastModified><ETag>\"e\"</ETag><Size>1</Size></Contents>"
        )
    };
    let contents: String = keys.iter().map(of).collect();
    format!(
        "<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>{next}{contents}</\
         ListBucketResult>"
    )
}

/// S3's simple put and multipart upload.
fn plain_put(
    state: &mut State,
    method: &str,
    target: &str,
    body: Vec<u8>,
) -> Option<(String, Vec<u8>)> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parameter =
        |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let store = |state: &mut State, content: Vec<u8>| {
        let etag = format!(
            "\"{:x}\"",
            content.iter().fold(7u64, |hash, byte| hash.wrapping_mul(31) ^ u64::from(*byte))
        );
        state.pages.insert(
            path.to_string(),
            Page { content, etag: Some(etag.clone()), ..Page::default() },
        );
        etag
    };
    match (method, parameter("partNumber"), query) {
        ("POST", _, query) if query.starts_with("uploads") => {
            let xml = "<InitiateMultipartUploadResult><UploadId>u1</UploadId></\
                       InitiateMultipartUploadResult>";
            Some((String::new(), xml.into()))
        }
        ("PUT", Some(part), _) => {
            state.parts.insert(part.parse().ok()?, body);
            Some((format!("ETag: \"part{part}\"\r\n"), vec![]))
        }
        ("POST", None, _) => {
            let content = std::mem::take(&mut state.parts).into_values().flatten().collect();
            let etag = store(state, content);
            let xml = format!(
                "<CompleteMultipartUploadResult><ETag>{etag}</ETag></\
                 CompleteMultipartUploadResult>"
            );
            Some((String::new(), xml.into()))
        }
        ("PUT", None, _) => Some((format!("ETag: {}\r\n", store(state, body)), vec![])),
        _ => None,
    }
}
