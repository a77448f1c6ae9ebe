//! One pass of PageRank, as Brin and Page define it: the rank of a page is 0.15, and 0.85 times the
//! sum of what the pages with a link to it give, each its rank divided by the number of its links.
//!
//! A page is a line `page TAB links TAB rank TAB rank before`; links are names between spaces. A
//! page without a rank has 1, so a list of links is a graph for the first pass. A page that only
//! links name gets a line without links. What such pages have is given to no page. Ranks are
//! rounded to 9 decimals, towards zero, so that the result does not depend on how pages were
//! divided.

use std::io::{BufRead, Write};

use crate::pieces::{self, key_and_value};
use crate::trouble::Trouble;
use crate::units::{self, ONE};

/// The part of a rank that links give, in percent.
const DAMPING_PERCENT: i128 = 85;

const NO_RANK: &str = "its rank is no number of up to 9 decimals";

/// Writes each page with its links, and for each link what it gives.
pub fn map(input: impl BufRead, output: &mut impl Write) -> Result<(), Trouble> {
    let mut number = 0;
    pieces::lines(input, |line| {
        number += 1;
        let (page, rest) = key_and_value(line);
        let (links, ranks) = key_and_value(rest.unwrap_or_default());
        let rank = match ranks.map(|ranks| key_and_value(ranks).0) {
            None => ONE,
            Some(rank) => {
                units::parse(rank).ok_or(Trouble::Line { line: number, wrong: NO_RANK })?
            }
        };
        write_page(output, page, links, rank)?;
        let linked = || links.split(|byte| *byte == b' ').filter(|link| !link.is_empty());
        let given = rank / linked().count().max(1) as i64;
        for link in linked() {
            output.write_all(link)?;
            writeln!(output, "\t+\t{given}")?;
        }
        Ok(())
    })
}

fn write_page(
    output: &mut impl Write,
    page: &[u8],
    links: &[u8],
    rank: i64,
) -> Result<(), Trouble> {
    output.write_all(page)?;
    output.write_all(b"\t=\t")?;
    output.write_all(links)?;
    Ok(writeln!(output, "\t{rank}")?)
}

/// What is known of a page.
struct Page {
    name: Vec<u8>,
    /// Links and rank before; none for a page that only links name.
    line: Option<(Vec<u8>, i128)>,
    given: i128,
}

impl Page {
    fn add(&mut self, kind: &[u8], rest: &[u8]) -> Option<()> {
        match kind {
            b"+" => self.given = self.given.checked_add(number(rest)?)?,
            b"=" => {
                let (links, rank) = key_and_value(rest);
                self.line = Some((links.to_vec(), number(rank?)?));
            }
            _ => return None,
        }
        Some(())
    }

    fn write(&self, output: &mut impl Write) -> Result<(), Trouble> {
        let (links, before) =
            self.line.as_ref().map_or((&b""[..], ONE.into()), |(links, rank)| (links, *rank));
        let rank =
            i128::from(ONE) * (100 - DAMPING_PERCENT) / 100 + self.given * DAMPING_PERCENT / 100;
        output.write_all(&self.name)?;
        output.write_all(b"\t")?;
        output.write_all(links)?;
        Ok(writeln!(output, "\t{}\t{}", units::format(rank), units::format(before))?)
    }
}

/// Reads the lines of `map`, grouped by page, and writes each page with its new rank.
pub fn reduce(input: impl BufRead, output: &mut impl Write) -> Result<(), Trouble> {
    let mut page: Option<Page> = None;
    let mut line = 0;
    pieces::lines(input, |text| {
        line += 1;
        let (name, rest) = key_and_value(text);
        let (kind, rest) = key_and_value(rest.unwrap_or_default());
        if let Some(before) = page.as_ref().filter(|page| page.name != name) {
            before.write(output)?;
            page = None;
        }
        let new = || Page { name: name.to_vec(), line: None, given: 0 };
        let page = page.get_or_insert_with(new);
        let wrong = "it is neither a page nor a link, as the map writes them";
        page.add(kind, rest.unwrap_or_default()).ok_or(Trouble::Line { line, wrong })
    })?;
    page.map_or(Ok(()), |page| page.write(output))
}

/// Whether no rank in the output of `reduce` has changed by more than `within`.
pub fn is_settled(input: impl BufRead, within: i64) -> Result<bool, Trouble> {
    let (mut line, mut is_settled) = (0, true);
    pieces::lines(input, |text| {
        line += 1;
        let mut columns = text.split(|byte| *byte == b'\t').skip(2).map(units::parse);
        let (Some(Some(rank)), Some(Some(before))) = (columns.next(), columns.next()) else {
            return Err(Trouble::Line { line, wrong: NO_RANK });
        };
        is_settled &= (rank - before).abs() <= within;
        Ok(())
    })?;
    Ok(is_settled && line > 0)
}

fn number(text: &[u8]) -> Option<i128> {
    str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(graph: &str) -> String {
        let mut lines = Vec::new();
        map(graph.as_bytes(), &mut lines).unwrap();
        let mut lines: Vec<_> = lines.split_inclusive(|byte| *byte == b'\n').collect();
        lines.sort();
        let mut output = Vec::new();
        reduce(&lines.concat()[..], &mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn a_page_gives_its_rank_to_its_links() {
        let first = pass("a\tb c\nb\tc\nc\ta\n");
        let expected = "a\tb c\t1.000000000\t1.000000000\nb\tc\t0.575000000\t1.000000000\n\
                        c\ta\t1.425000000\t1.000000000\n";
        assert_eq!(first, expected);
        let second = pass(&first);
        assert!(second.starts_with("a\tb c\t1.361250000\t1.000000000\n"), "{second}");
        assert_eq!(
            pass("a\tx\n"),
            "a\tx\t0.150000000\t1.000000000\nx\t\t1.000000000\t1.000000000\n"
        );
        let settled = |within| is_settled(first.as_bytes(), within).unwrap();
        assert_eq!((settled(ONE / 2), settled(ONE / 10)), (true, false));
    }

    #[test]
    fn wrong_lines_are_refused() {
        assert!(map(&b"a\tb\tmany\n"[..], &mut Vec::new()).is_err());
        assert!(reduce(&b"a\t+\tx\n"[..], &mut Vec::new()).is_err());
        assert!(reduce(&b"a\n"[..], &mut Vec::new()).is_err());
        assert!(is_settled(&b"a\tb\t1\n"[..], 0).is_err());
    }
}
