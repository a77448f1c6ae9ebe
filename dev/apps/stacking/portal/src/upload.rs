//! Bodies of requests: forms, uploaded files, and content that is compressed with gzip. All of it
//! is bounded before it is read.

use std::io::Read;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use memchr::memmem;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::problem::Problem;

/// Largest body of a request.
const MAX_UPLOAD_BYTES: usize = 16 << 20;
/// Largest content of a compressed list.
const MAX_UNPACKED_BYTES: usize = 32 << 20;
/// Largest body that does not count as an upload.
const SMALL_BYTES: u64 = 64 << 10;
/// Uploads that are read and handled at the same time.
const MAX_UPLOADS: usize = 16;
static UPLOADS: Semaphore = Semaphore::const_new(MAX_UPLOADS);
/// Fields of a form.
const MAX_FORM_FIELDS: usize = 100;

/// The fields of a form, as they were sent.
#[derive(Default)]
pub struct Form {
    fields: Vec<(String, Vec<u8>)>,
    /// Held until the form was handled, if it is large.
    _permit: Option<SemaphorePermit<'static>>,
}

impl Form {
    /// Reads the form in a body. A body that is too large is refused by its length, before it is
    /// read.
    pub async fn read(headers: &HeaderMap, body: Body) -> Result<Self, Problem> {
        let length = length_of(headers);
        let is_small = length.is_some_and(|length| length <= SMALL_BYTES);
        // The semaphore is never closed.
        let permit = if is_small { None } else { UPLOADS.acquire().await.ok() };
        let bytes = read_body(headers, body, MAX_UPLOAD_BYTES).await?;
        Ok(Form { _permit: permit, ..Form::parsed(headers, &bytes)? })
    }

    /// Reads a small form, of a request that shows no account.
    pub async fn read_small(headers: &HeaderMap, body: Body) -> Result<Self, Problem> {
        Form::parsed(headers, &read_body(headers, body, SMALL_BYTES as usize).await?)
    }

    fn parsed(headers: &HeaderMap, bytes: &Bytes) -> Result<Self, Problem> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let kind = text(header::CONTENT_TYPE).unwrap_or_default();
        let plain = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let fields = match &*plain {
            "application/x-www-form-urlencoded" => url_fields(bytes),
            "multipart/form-data" => {
                let boundary = boundary_of(kind).ok_or_else(|| {
                    Problem::wrong("the form has no boundary: send multipart/form-data with one")
                })?;
                multipart_fields(bytes, &boundary)?
            }
            "" if bytes.is_empty() => Vec::new(),
            _ => {
                return Err(Problem::unsupported(
                    "send a form: application/x-www-form-urlencoded or multipart/form-data",
                ));
            }
        };
        match fields.len() > MAX_FORM_FIELDS {
            true => Err(Problem::wrong("the form has too many fields")),
            false => Ok(Form { fields, _permit: None }),
        }
    }

    /// The parameters behind the `?` of a URL.
    pub fn of_query(query: Option<&str>) -> Result<Self, Problem> {
        let fields = url_fields(query.unwrap_or_default().as_bytes());
        if fields.len() > MAX_FORM_FIELDS {
            let words = format!("the URL has more than {MAX_FORM_FIELDS} parameters");
            return Err(Problem::wrong(format!("{words}: ask for fewer at once")));
        }
        Ok(Form { fields, _permit: None })
    }

    /// All fields: names are compared without regard to case, as IVOA's protocols have it.
    pub fn fields(&self) -> impl Iterator<Item = (String, &[u8])> {
        self.fields.iter().map(|(name, value)| (name.to_ascii_uppercase(), &**value))
    }

    /// The last field of a name, as text without blanks at its ends.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.untrimmed(name).map(str::trim)
    }

    /// The last field of a name, as text with the blanks at its ends, such as a password.
    pub fn untrimmed(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().rev().find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// All fields of a name, as text.
    pub fn texts(&self, name: &str) -> Vec<&str> {
        let fields = self.fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        fields.filter_map(|(_, value)| std::str::from_utf8(value).ok()).collect()
    }
}

fn length_of(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(header::CONTENT_LENGTH)?.to_str().ok()?;
    length.parse().ok()
}

async fn read_body(headers: &HeaderMap, body: Body, bound: usize) -> Result<Bytes, Problem> {
    let too_large = || {
        let words = format!("the request has more than {} KiB", bound >> 10);
        Problem::too_large(format!("{words}: send fewer positions, or compress the file with gzip"))
    };
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Problem::unsupported("send the request without Content-Encoding"));
    }
    if length_of(headers).is_some_and(|length| length > bound as u64) {
        return Err(too_large());
    }
    to_bytes(body, bound).await.map_err(|_| too_large())
}

fn url_fields(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let pairs = form_urlencoded::parse(bytes).take(MAX_FORM_FIELDS + 1);
    pairs.map(|(name, value)| (name.into_owned(), value.into_owned().into_bytes())).collect()
}

/// The boundary of a multipart form, by RFC 2046.
fn boundary_of(kind: &str) -> Option<String> {
    let is_it = |part: &&str| part.trim().to_ascii_lowercase().starts_with("boundary=");
    let part = kind.split(';').find(is_it)?;
    let boundary = part.split_once('=')?.1.trim().trim_matches('"');
    (1..=70).contains(&boundary.len()).then(|| boundary.to_owned())
}

/// The fields of a multipart form, by RFC 7578. The names of files are not used.
fn multipart_fields(bytes: &[u8], boundary: &str) -> Result<Vec<(String, Vec<u8>)>, Problem> {
    let wrong = || Problem::wrong("the form is not multipart/form-data, or it was cut");
    // The first delimiter has no line end before it.
    let delimiter = format!("\r\n--{boundary}");
    let first = &delimiter.as_bytes()[2..];
    let start = match bytes.starts_with(first) {
        true => first.len(),
        false => memmem::find(bytes, delimiter.as_bytes()).ok_or_else(wrong)? + delimiter.len(),
    };
    let mut rest = &bytes[start..];
    let mut fields = Vec::new();
    while !rest.starts_with(b"--") {
        let end = memmem::find(rest, delimiter.as_bytes()).ok_or_else(wrong)?;
        let part = rest[..end].strip_prefix(b"\r\n").ok_or_else(wrong)?;
        let head = memmem::find(part, b"\r\n\r\n").ok_or_else(wrong)?;
        let name = field_name(&String::from_utf8_lossy(&part[..head])).ok_or_else(wrong)?;
        fields.push((name, part[head + 4..].to_vec()));
        if fields.len() > MAX_FORM_FIELDS {
            return Err(wrong());
        }
        rest = &rest[end + delimiter.len()..];
    }
    Ok(fields)
}

fn field_name(head: &str) -> Option<String> {
    let is_it = |line: &&str| line.to_ascii_lowercase().starts_with("content-disposition:");
    let line = head.lines().find(is_it)?;
    let is_name = |part: &&str| part.trim().starts_with("name=");
    let part = line.split(';').find(is_name)?;
    Some(part.trim().strip_prefix("name=")?.trim_matches('"').to_owned())
}

/// The content of a list, unpacked if it is compressed with gzip.
pub fn unpacked(bytes: &[u8]) -> Result<Vec<u8>, Problem> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes.to_vec());
    }
    let mut content = Vec::new();
    let bound = MAX_UNPACKED_BYTES as u64 + 1;
    let read = MultiGzDecoder::new(bytes).take(bound).read_to_end(&mut content);
    match read {
        Err(why) => Err(Problem::wrong(format!("the compressed list is damaged: {why}"))),
        Ok(_) if content.len() > MAX_UNPACKED_BYTES => {
            let words = format!("the unpacked list has more than {} MiB", MAX_UNPACKED_BYTES >> 20);
            Err(Problem::too_large(format!("{words}: send fewer positions")))
        }
        Ok(_) => Ok(content),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    #[test]
    fn multipart_forms_are_read_and_cut_ones_are_refused() {
        let form = "--xx\r\nContent-Disposition: form-data; name=\"SURVEY\"\r\n\r\nsky\r\n--xx\r\n\
            content-disposition: form-data; name=\"POSITIONS\"; filename=\"../../a\"\r\n\
            Content-Type: text/csv\r\n\r\n1 2\r\n3 4\r\n\r\n--xx--\r\n";
        let fields = multipart_fields(form.as_bytes(), "xx").unwrap();
        assert_eq!(fields[0], ("SURVEY".into(), b"sky".to_vec()));
        assert_eq!(fields[1], ("POSITIONS".into(), b"1 2\r\n3 4\r\n".to_vec()));
        for cut in 0..form.len() - 5 {
            assert!(multipart_fields(&form.as_bytes()[..cut], "xx").is_err(), "{cut}");
        }
        assert_eq!(boundary_of("multipart/form-data; boundary=\"a b\""), Some("a b".into()));
        assert_eq!(boundary_of("multipart/form-data"), None);
    }

    #[test]
    fn compressed_lists_are_unpacked_up_to_a_bound() {
        let packed = |bytes: &[u8]| {
            let mut packer = GzEncoder::new(Vec::new(), Compression::best());
            packer.write_all(bytes).unwrap();
            packer.finish().unwrap()
        };
        assert_eq!(unpacked(&packed(b"1 2")).unwrap(), b"1 2");
        assert_eq!(unpacked(b"1 2").unwrap(), b"1 2");
        let bomb = packed(&vec![0; MAX_UNPACKED_BYTES + 1]);
        assert!(bomb.len() < 1 << 20);
        assert!(unpacked(&bomb).unwrap_err().message.contains("fewer positions"));
        let damaged = &packed(b"1 2")[..12];
        assert!(unpacked(damaged).unwrap_err().message.contains("damaged"));
    }

    #[test]
    fn fields_are_found_in_any_case() {
        let form = Form::of_query(Some("Phase=RUN&x=%20a+b%20&PHASE=ABORT")).unwrap();
        assert_eq!(form.text("phase"), Some("ABORT"));
        assert_eq!(form.text("X"), Some("a b"));
        assert_eq!(form.untrimmed("X"), Some(" a b "), "passwords may have blanks at their ends");
        assert_eq!(form.texts("phase"), ["RUN", "ABORT"]);
        assert_eq!(form.fields().next().unwrap().0, "PHASE");
        assert!(Form::of_query(Some(&"ID=a&".repeat(MAX_FORM_FIELDS))).is_ok());
        let many = "ID=a&".repeat(MAX_FORM_FIELDS + 1);
        assert!(Form::of_query(Some(&many)).is_err_and(|why| why.message.contains("fewer")));
    }
}
