//! What users write on a command line: patterns, names, amounts, and words with placeholders.

use eyas_store::{Glob, url_of};
use eyas_types::dfs::{FileName, Format};
use eyas_types::template::Expansion;
use eyas_types::{Name, Template, Value, shown, units};

use crate::parts;

/// A pattern and a path.
pub(crate) fn globs(bytes: &[u8]) {
    let [pattern, path] = parts(bytes);
    if let Ok(glob) = Glob::parse(pattern) {
        glob.names(path);
    }
    let exact = Glob::parse(&Glob::escape(path)).expect("an escaped name is a pattern");
    let is_usual =
        !path.ends_with(b"/") && !path.split(|byte| *byte == b'/').any(|part| part == b"**");
    assert!(exact.names(path) || !is_usual, "{} matches itself", shown(path));
}

/// Names of files and formats, URLs, sizes, rates, durations and ranges.
pub(crate) fn names(bytes: &[u8]) {
    let _ = url_of(bytes);
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(name) = text.parse::<FileName>() {
        assert_eq!(name.as_str().parse::<FileName>().as_ref(), Ok(&name));
        assert!(name.parent().is_none_or(|parent| name.is_within(parent.as_str())));
    }
    if let Ok(format) = text.parse::<Format>() {
        assert_eq!(format.to_string().parse::<Format>(), Ok(format));
    }
    let _ = units::parse_bytes(text).map(units::format_bytes);
    let _ = units::parse_rate(text);
    let _ = units::parse_duration_us(text).map(units::format_duration_us);
    let _ = eyas_client::check_range(text);
    let _ = text.parse::<eyas_client::ByteRange>();
    let _ = text.parse::<eyas_client::RecordRange>();
}

/// A word with placeholders, and the value of an item.
pub(crate) fn templates(bytes: &[u8]) {
    let [word, text, staged] = parts(bytes);
    let template = Template::parse(word);
    assert_eq!(
        Template::parse(template.written()),
        template,
        "{} is what it is written as",
        shown(word)
    );
    let values = [
        Value { text: Name::from(text), input: None },
        Value { text: Name::from(staged), input: Some(0) },
    ];
    let staged = [Name::from(staged)];
    for (values, staged) in
        [(&values[..0], &staged[..0]), (&values[..1], &staged[..]), (&values[..], &staged[..])]
    {
        let with =
            Expansion { values, staged, template_inputs: 0, number: 1, slot: 1, input_list: text };
        template.expand(&with);
        template.is_known(values);
    }
    let _ = (
        template.is_glob(),
        template.highest_column(),
        template.highest_input(),
        template.has_value(),
    );
}
