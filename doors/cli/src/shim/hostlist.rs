//! Lists of hosts as Slurm writes them: `n[1-3,07],login`.

/// Most names of a list.
const MAX_HOSTS: usize = 65_536;

/// The names of a list.
///
/// # Errors
/// If the list is empty, is not understood, or has too many names.
pub(super) fn hostnames(list: &str) -> Result<Vec<String>, String> {
    let (mut names, mut depth) = (Vec::new(), 0_u32);
    let parts = list.split(|letter| {
        depth = match letter {
            '[' => depth + 1,
            ']' => depth.saturating_sub(1),
            _ => depth,
        };
        letter == ',' && depth == 0
    });
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        expand("", part, &mut names)
            .map_err(|why| format!("`{list}` is not a list of hosts: {why}"))?;
    }
    if names.is_empty() { Err("the list of hosts is empty".into()) } else { Ok(names) }
}

/// Adds the names of one part, which may have several brackets.
fn expand(before: &str, part: &str, names: &mut Vec<String>) -> Result<(), String> {
    let Some((head, rest)) = part.split_once('[') else {
        if names.len() == MAX_HOSTS {
            return Err(format!("it has more than {MAX_HOSTS} names"));
        }
        names.push(format!("{before}{part}"));
        return Ok(());
    };
    let (ranges, tail) = rest.split_once(']').ok_or("a `[` has no `]`")?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            text.parse::<u32>().map_err(|_| format!("`{range}` is not a range of numbers"))
        };
        let (from, to, digits) = (number(first)?, number(last)?, first.len().min(10));
        for number in from..=to {
            expand(&format!("{before}{head}{number:0digits$}"), tail, names)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_hosts_are_expanded() {
        assert_eq!(
            hostnames("n[1-3,07],login,r[1-2]c[8-9]x").unwrap().join(" "),
            "n1 n2 n3 n07 login r1c8x r1c9x r2c8x r2c9x"
        );
        assert_eq!(hostnames("n[08-10]").unwrap(), ["n08", "n09", "n10"]);
        for wrong in ["", ",", "n[1-", "n[a-b]", "n[1-2-3]", "n[]", "n[1-4000000000]"] {
            assert!(hostnames(wrong).is_err(), "{wrong}");
        }
    }
}
