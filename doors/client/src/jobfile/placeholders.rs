//! Text in the names of outputs that looks like a placeholder of another program and is none here.
//! Without a word about it, all tasks of an array would write one file with braces in its name.

use eyas_types::{Template, TemplatePart};

/// What each text in braces is taken for by mistake, and what to write.
const MISTAKEN: &[(&[&str], &str)] = &[
    (
        &["basename", "name", "stem", "base", "output"],
        "; `{/.}` is the name without folder and extension",
    ),
    (&["filename"], "; `{/}` is the name without folder"),
    (&["dirname", "dir", "folder"], "; `{//}` is the folder of the item"),
    (&["input", "item", "file", "path"], "; `{}` is the item"),
    (&["index", "number", "task"], "; `{#}` is the number of the task in its job"),
];

/// What is wrong with a text in braces of the name of an output, if anything is.
pub(super) fn no_placeholder(name: &Template) -> Option<String> {
    let literals = name.0.iter().filter_map(|part| match part {
        TemplatePart::Literal(text) => Some(text.to_string()),
        _ => None,
    });
    literals.into_iter().find_map(|text| {
        let in_braces = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
        in_braces.map(|(inner, _)| inner).find_map(|inner| {
            let is_zero = ["0", "0.", "0/", "0//", "0/."].contains(&inner);
            let mistaken = MISTAKEN.iter().find(|(words, _)| words.contains(&inner));
            let instead = match is_zero {
                true => ": columns count from {1}",
                false => mistaken?.1,
            };
            Some(format!("`{{{inner}}}` is not a placeholder{instead}"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_placeholder_is_named() {
        for (name, says) in [
            ("cut/{0}.fits", Some("`{0}` is not a placeholder: columns count from {1}")),
            ("{}/{0/.}", Some("`{0/.}` is not a placeholder: columns count from {1}")),
            (
                "{basename}.fits",
                Some("`{basename}` is not a placeholder; `{/.}` is the name without folder"),
            ),
            ("x{input}", Some("`{input}` is not a placeholder; `{}` is the item")),
            ("{a}{output}", Some("`{output}` is not a placeholder; `{/.}` is the name")),
            ("{1}-{/.}-{#}.fits", None),
            (r"\{}.txt", None),
            ("{a,b}.{other}", None),
        ] {
            let said = no_placeholder(&Template::parse(name));
            let is_right = match says {
                Some(says) => said.as_ref().is_some_and(|said| said.starts_with(says)),
                None => said.is_none(),
            };
            assert!(is_right, "{name}: {said:?}");
        }
    }
}
