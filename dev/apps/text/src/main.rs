//! Programs over blocks of text, as Hadoop's examples define them: grep, word count, aggregate word
//! count, join and sort; and one pass of two iterations, k-means and PageRank.
//!
//! A map program reads its block, whole lines, from its input and writes lines `key TAB value`. A
//! reduce program reads such lines, grouped by key, and writes results. Any shuffle can run between
//! them, for example `LC_ALL=C sort`. The programs do not know which system runs them. They read
//! no files but those in their arguments, and keep no state between runs: the same block always
//! gives the same bytes.

#![forbid(unsafe_code)]

mod counts;
mod grep;
mod join;
mod k_means;
mod page_rank;
mod pieces;
mod sort;
mod trouble;
mod units;
mod words;

use std::io::{self, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use regex::bytes::Regex;

use crate::join::Side;
use crate::trouble::Trouble;

/// Size of reads and writes.
const BUFFER_BYTES: usize = 1 << 18;

/// Programs over blocks of text: they read lines from stdin and write lines to stdout.
///
/// Map programs write `key TAB value`; reduce programs read that, all lines of a key together:
///
/// eyas-text word-count map < part | LC_ALL=C sort | eyas-text word-count reduce
#[derive(Parser)]
#[command(version, verbatim_doc_comment)]
struct Args {
    #[command(subcommand)]
    program: Program,
}

#[derive(Subcommand)]
enum Program {
    /// Lines with a match; exits with 0 also if there is none
    Grep {
        /// A regular expression, in the syntax of Rust's regex crate
        pattern: Regex,
        /// Write `match TAB 1` for each match instead, to be summed by `word-count reduce`; tabs
        /// in it become spaces
        #[arg(long)]
        matches: bool,
    },
    /// Count each word; words are separated by white space
    WordCount { step: Step },
    /// Count each word, with the counts of a block added up before they are written
    AggregateWordCount { step: Step },
    /// Pairs of values with the same key in two inputs
    Join {
        #[command(subcommand)]
        step: JoinStep,
    },
    /// One pass of k-means over points such as 1.5,-2
    KMeans {
        #[command(subcommand)]
        step: KMeansStep,
    },
    /// One pass of PageRank over lines `page TAB links`
    PageRank {
        #[command(subcommand)]
        step: PageRankStep,
    },
    /// Lines in the order of their keys, which the shuffle establishes
    Sort { step: Step },
}

#[derive(Clone, Copy, ValueEnum)]
enum Step {
    Map,
    Reduce,
}

#[derive(Subcommand)]
enum JoinStep {
    /// Mark lines `key TAB value` with the number of their input
    Map {
        /// The input of all lines; by default each line begins with its input and a tab
        input: Option<Side>,
    },
    /// Lines `key TAB value of input 1 TAB value of input 2`
    Reduce,
}

#[derive(Subcommand)]
enum KMeansStep {
    /// The number and the sums of the points nearest to each centroid
    Map {
        /// Files with a centroid in the first column of each line
        #[arg(required = true)]
        centroids: Vec<PathBuf>,
    },
    /// The same, added up
    Combine,
    /// Lines `new centroid TAB old centroid TAB number of points`
    Reduce,
    /// Exits with 0 if no centroid of the reduce has moved by more than this, else with 1
    Settled {
        /// The distance in each dimension
        #[arg(long, default_value = "0", value_parser = parse_units)]
        within: i64,
    },
}

#[derive(Subcommand)]
enum PageRankStep {
    /// The pages, and what each link gives
    Map,
    /// Lines `page TAB links TAB rank TAB rank before`
    Reduce,
    /// Exits with 0 if no rank of the reduce has changed by more than this, else with 1
    Settled {
        /// The difference
        #[arg(long, default_value = "0", value_parser = parse_units)]
        within: i64,
    },
}

fn parse_units(text: &str) -> Result<i64, String> {
    units::parse(text.as_bytes()).ok_or_else(|| "write a number of up to 9 decimals".into())
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut output = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
    let done = run(args.program, &mut output).and_then(|is_so| {
        output.flush()?;
        Ok(is_so)
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(trouble) => {
            if !trouble.is_closed_pipe() {
                eprintln!("eyas-text: {trouble}");
            }
            ExitCode::from(trouble.exit_code())
        }
    }
}

/// Runs a program; returns `false` if it looks for something that is not so.
fn run(program: Program, output: &mut impl Write) -> Result<bool, Trouble> {
    let input = BufReader::with_capacity(BUFFER_BYTES, io::stdin().lock());
    match program {
        Program::KMeans { step: KMeansStep::Settled { within } } => {
            return k_means::is_settled(input, within);
        }
        Program::PageRank { step: PageRankStep::Settled { within } } => {
            return page_rank::is_settled(input, within);
        }
        Program::KMeans { step: KMeansStep::Map { centroids } } => {
            k_means::map(&k_means::centroids(&centroids)?, input, output)
        }
        Program::KMeans { step: KMeansStep::Combine } => k_means::combine(input, output),
        Program::KMeans { step: KMeansStep::Reduce } => k_means::reduce(input, output),
        Program::PageRank { step: PageRankStep::Map } => page_rank::map(input, output),
        Program::PageRank { step: PageRankStep::Reduce } => page_rank::reduce(input, output),
        Program::Grep { pattern, matches: false } => grep::lines(&pattern, input, output),
        Program::Grep { pattern, matches: true } => grep::matches(&pattern, input, output),
        Program::WordCount { step: Step::Map } => words::map(input, output),
        Program::AggregateWordCount { step: Step::Map } => {
            words::aggregate(input, output, words::MAX_TABLE_BYTES)
        }
        Program::WordCount { step: Step::Reduce }
        | Program::AggregateWordCount { step: Step::Reduce } => counts::reduce(input, output),
        Program::Join { step: JoinStep::Map { input: Some(side) } } => {
            join::map(side, input, output)
        }
        Program::Join { step: JoinStep::Map { input: None } } => join::map_marked(input, output),
        Program::Join { step: JoinStep::Reduce } => {
            join::reduce(input, output, join::MAX_KEY_BYTES)
        }
        // The shuffle sorts; as in Hadoop, map and reduce copy the lines.
        Program::Sort { step: Step::Map | Step::Reduce } => sort::copy(input, output),
    }?;
    Ok(true)
}
