//! Which images of a FITS file are meant: its header and data units (HDUs) by number or name.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use crate::error::FileProblem;
use crate::header::Header;

/// A choice of images of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HduChoice {
    /// The first image.
    #[default]
    First,
    /// Every image of two axes.
    All,
    /// The image in this HDU; 0 is the primary one.
    Number(usize),
    /// Every image whose EXTNAME is this, in letters of any case.
    Name(String),
}

impl HduChoice {
    /// Whether at most one image of a file is chosen.
    pub fn is_one(&self) -> bool {
        matches!(self, HduChoice::First | HduChoice::Number(_))
    }

    /// Whether the HDU with a number and header is chosen; its image has `image_axes`. An error if
    /// it is chosen by its number and has no image.
    pub(crate) fn chooses(
        &self,
        number: usize,
        header: &Header,
        image_axes: Option<usize>,
    ) -> Result<bool, FileProblem> {
        let is_image = image_axes.is_some();
        Ok(match self {
            HduChoice::First => is_image,
            HduChoice::All => image_axes == Some(2),
            HduChoice::Number(wanted) if *wanted == number && !is_image => {
                return Err(FileProblem::HduWithoutImage(number));
            }
            HduChoice::Number(wanted) => *wanted == number,
            HduChoice::Name(name) => {
                let own = header.text("EXTNAME")?;
                is_image && own.is_some_and(|own| own.eq_ignore_ascii_case(name))
            }
        })
    }
}

/// `first`, `all`, a number, or a name.
impl FromStr for HduChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match (text, text.parse()) {
            ("first", _) => HduChoice::First,
            ("all", _) => HduChoice::All,
            (_, Ok(number)) => HduChoice::Number(number),
            _ => HduChoice::Name(text.to_owned()),
        })
    }
}

impl fmt::Display for HduChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HduChoice::First => out.write_str("first"),
            HduChoice::All => out.write_str("all"),
            HduChoice::Number(number) => number.fmt(out),
            HduChoice::Name(name) => out.write_str(name),
        }
    }
}
