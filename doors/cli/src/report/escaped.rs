//! Templates of pages, and text from users in them, which never acts as markup or script.

use std::fmt::{self, Display, Formatter, Write};

use eyas_client::types::shown::acts;

/// Text from users, escaped for markup and for attributes in double quotes.
pub(crate) struct EscapedText<'a>(pub &'a str);

impl Display for EscapedText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(letter)?,
                // HTML does not allow control characters, and XML neither these two. Marks that
                // change the direction of text would show a name as another one.
                '\u{fffe}' | '\u{ffff}' => f.write_char('\u{fffd}')?,
                _ if acts(letter) => f.write_char('\u{fffd}')?,
                _ => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Replaces each placeholder `{{name}}` of a template by its value, in one pass: a value is never
/// searched for placeholders.
pub(super) fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut page = String::with_capacity(
        template.len() + values.iter().map(|(_, value)| value.len()).sum::<usize>(),
    );
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        // The template is a part of this program: every test that makes a page finds a wrong name.
        let (name, after) =
            after.split_once("}}").expect("a placeholder in the template is closed");
        let (_, value) = values
            .iter()
            .find(|(known, _)| *known == name)
            .expect("a placeholder in the template has a value");
        page.push_str(before);
        page.push_str(value);
        rest = after;
    }
    page.push_str(rest);
    page
}
