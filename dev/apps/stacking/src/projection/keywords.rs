//! The world coordinate system in the keywords of a header.
//!
//! What is not understood is refused, with the keyword that says it: another system of coordinates
//! or equinox, units other than angles, unknown projections and distortions, parameters that a
//! projection has not, and keywords that contradict each other. Only a keyword whose value changes
//! nothing may be passed over.

use super::conic::Conic;
use super::cylindrical::Cylindrical;
use super::healpix::Healpix;
use super::polynomial::{Polynomials, Term};
use super::sphere::{Angles, Rotation, sin_cos};
use super::zenithal::{Slant, Zenithal};
use super::{MapProjection, Projection};
use crate::error::FileProblem;
use crate::header::Header;

/// The codes of CTYPE that are understood.
const CODES: &str = "AIR, AIT, ARC, AZP, CAR, CEA, COD, COE, COO, COP, CYP, HPX, MER, MOL, NCP, \
                     PAR, SFL, SIN, STG, SZP, TAN, TPV, ZEA and ZPN";

/// Largest m of a keyword PVi_m that a projection may have (TPV).
const MAX_PARAMETER: usize = 39;

/// Largest order of the polynomials of SIP.
const MAX_ORDER: i64 = 9;

/// The exponents of the terms of TPV: of the coordinate itself, of the other one, and of the
/// radius.
const TPV_TERMS: [[i32; 3]; MAX_PARAMETER + 1] = tpv_terms();

const fn tpv_terms() -> [[i32; 3]; MAX_PARAMETER + 1] {
    let mut terms = [[0; 3]; MAX_PARAMETER + 1];
    let (mut number, mut order) = (0, 0);
    while order <= 7 {
        let mut other = 0;
        while other <= order {
            terms[number] = [order - other, other, 0];
            number += 1;
            other += 1;
        }
        // Odd orders end with the radius.
        if order % 2 == 1 {
            terms[number] = [0, 0, order];
            number += 1;
        }
        order += 1;
    }
    terms
}

/// Reads the projection of a frame, which is not checked yet.
pub fn read(header: &Header) -> Result<Projection, FileProblem> {
    let celestial = CelestialAxes::read(header)?;
    check_system(header)?;
    check_other_distortions(header)?;
    let units = [unit(header, "CUNIT1")?, unit(header, "CUNIT2")?];
    let needed = |keyword| header.number(keyword)?.ok_or_else(|| missing(keyword, WHERE));
    let reference = [needed("CRPIX1")?, needed("CRPIX2")?];
    let mut values = [needed("CRVAL1")? * units[0], needed("CRVAL2")? * units[1]];
    let linear = matrix(header, 1 - celestial.longitude, units)?;
    let determinant = linear[0][0] * linear[1][1] - linear[0][1] * linear[1][0];
    if determinant == 0.0 || !determinant.is_finite() {
        let trouble = "the matrix from pixels to degrees has no inverse".to_owned();
        return Err(FileProblem::Positions(trouble));
    }
    let inverse = [
        [linear[1][1] / determinant, -linear[0][1] / determinant],
        [-linear[1][0] / determinant, linear[0][0] / determinant],
    ];
    values.rotate_left(celestial.longitude);
    let [ra, dec] = values;
    if dec.abs() > 90.0 {
        let trouble = format!("a declination of {dec}");
        return Err(keyword(&format!("CRVAL{}", 2 - celestial.longitude), trouble));
    }

    let scaled =
        header.contains("CDELT1") && !["CD1_1", "CD1_2"].iter().any(|name| header.contains(name));
    if celestial.code == "TPV" && (scaled || units != [1.0, 1.0] || celestial.longitude == 1) {
        // WCSLIB takes other variables for its polynomials then than the convention.
        let trouble = "TPV is read with CD1_1 in degrees, and right ascension first, only";
        return Err(keyword("CTYPE1", trouble));
    }
    let sip = sip(header, celestial.sip)?;
    let parameters = Parameters::read(header, &celestial)?;
    let tpv = (celestial.code == "TPV").then(|| parameters.tpv());
    let map = parameters.map(&celestial, dec)?;
    let rotation = Rotation::new(Angles {
        sky: (ra, dec),
        native: parameters.reference.unwrap_or(map.reference()),
        lonpole: parameters.lonpole.or(header.number("LONPOLE")?),
        latpole: parameters.latpole.or(header.number("LATPOLE")?),
    });
    let rotation = rotation.ok_or_else(|| {
        let trouble =
            "no rotation of the sky has this reference (CRVAL, LONPOLE and LATPOLE)".to_owned();
        FileProblem::Positions(trouble)
    })?;
    let longitude = celestial.longitude;
    Ok(Projection { reference, sip, linear, inverse, longitude, tpv, map, rotation })
}

/// Whether [`read`] may ask for a keyword.
pub fn is_read(keyword: &str) -> bool {
    const BEGIN: [&str; 13] = [
        "CTYPE", "CUNIT", "CRPIX", "CRVAL", "CDELT", "CROTA", "CD", "PC", "PV", "A_", "B_",
        "CPDIS", "CQDIS",
    ];
    const NAMES: [&str; 8] =
        ["RADESYS", "RADECSYS", "EQUINOX", "EPOCH", "LONPOLE", "LATPOLE", "D2IMDIS1", "D2IMDIS2"];
    NAMES.contains(&keyword)
        || keyword == "D2IMARR"
        || BEGIN.iter().any(|begin| keyword.starts_with(begin))
}

/// The purpose of keywords that every frame must have.
const WHERE: &str = "where the frame is on the sky";

fn missing(keyword: &str, purpose: &'static str) -> FileProblem {
    FileProblem::Missing { keyword: keyword.to_owned(), purpose }
}

fn keyword(keyword: &str, trouble: impl Into<String>) -> FileProblem {
    FileProblem::Keyword { keyword: keyword.to_owned(), trouble: trouble.into() }
}

/// Refuses a number that is there and not `neutral`.
fn neutral(header: &Header, name: &str, neutral: f64, trouble: &str) -> Result<(), FileProblem> {
    match header.number(name)? {
        Some(number) if number != neutral => Err(keyword(name, format!("is {number}: {trouble}"))),
        _ => Ok(()),
    }
}

/// What CTYPE1 and CTYPE2 say.
struct CelestialAxes {
    /// The axis, 0 or 1, that is right ascension.
    longitude: usize,
    code: String,
    sip: bool,
}

impl CelestialAxes {
    fn read(header: &Header) -> Result<Self, FileProblem> {
        let names = ["CTYPE1", "CTYPE2"];
        let types = [header.text(names[0])?, header.text(names[1])?];
        let longitude = usize::from(types[0].is_some_and(|first| first.starts_with("DEC--")));
        let mut endings = ["", ""];
        for axis in 0..2 {
            let ctype = types[axis].ok_or_else(|| missing(names[axis], WHERE))?;
            let begins = if axis == longitude { "RA---" } else { "DEC--" };
            let ending =
                ctype.strip_prefix(begins).filter(|ending| ending.is_ascii() && ending.len() >= 3);
            endings[axis] = ending.ok_or_else(|| {
                keyword(names[axis], format!("is '{ctype}', should be like '{begins}TAN'"))
            })?;
        }
        let [first, second] = endings;
        let (code, distortion) = first.split_at(3);
        if !CODES.split([',', ' ']).any(|known| known == code && known.len() == 3 && known != "and")
        {
            return Err(keyword(
                "CTYPE1",
                format!("a projection that we do not know: '{code}'; known are {CODES}"),
            ));
        }
        if first != second {
            return Err(keyword("CTYPE2", format!("ends in '{second}', but CTYPE1 in '{first}'")));
        }
        let sip = match distortion {
            "" => false,
            "-SIP" => true,
            _ => {
                return Err(keyword(
                    "CTYPE1",
                    format!("a distortion that we do not know: '{distortion}'"),
                ));
            }
        };
        Ok(Self { longitude, code: code.to_owned(), sip })
    }

    /// The letter i of PVi_m for right ascension and declination.
    fn numbers(&self) -> (usize, usize) {
        (self.longitude + 1, 2 - self.longitude)
    }
}

/// Refuses what is neither ICRS nor FK5 of J2000, which differ by 0.02 arcsec.
fn check_system(header: &Header) -> Result<(), FileProblem> {
    let (name, equinox) = match equinox(header, "EQUINOX")? {
        Some(year) => ("EQUINOX", Some(year)),
        None => ("EPOCH", equinox(header, "EPOCH")?),
    };
    let system = ["RADESYS", "RADECSYS"].iter().find_map(|name| match header.text(name) {
        Ok(text) => text.filter(|text| !text.is_empty()).map(|text| Ok((*name, text))),
        Err(error) => Some(Err(error)),
    });
    match (system.transpose()?, equinox) {
        (Some((_, "ICRS")), _) | (None, None) => Ok(()),
        (Some((_, "FK5")) | None, year) if year.is_none_or(|year| year == 2000.0) => Ok(()),
        (Some((_, "FK5")) | None, Some(year)) => {
            let trouble = format!("is {year}: positions are read as ICRS or FK5 of J2000 only");
            Err(keyword(name, trouble))
        }
        (Some((name, other)), _) => Err(keyword(
            name,
            format!("is '{other}': positions are read as ICRS or FK5 of J2000 only"),
        )),
    }
}

/// A year, which some write as text: 'J2000.0'. B1950 is none that is read, whatever the letter.
fn equinox(header: &Header, name: &str) -> Result<Option<f64>, FileProblem> {
    let Ok(Some(text)) = header.text(name) else { return header.number(name) };
    let year = text.strip_prefix('J').and_then(|year| year.parse().ok());
    year.map(Some)
        .ok_or_else(|| keyword(name, format!("'{text}' is no year: positions are of J2000 only")))
}

/// Refuses distortions by tables, and a third axis that takes part.
fn check_other_distortions(header: &Header) -> Result<(), FileProblem> {
    let tables = ["CPDIS1", "CPDIS2", "CQDIS1", "CQDIS2", "D2IMDIS1", "D2IMDIS2", "D2IMARR"];
    if let Some(name) = tables.iter().find(|name| header.contains(name)) {
        return Err(keyword(name, "a distortion by a table, which we do not know"));
    }
    for name in ["PC1_3", "PC2_3", "CD1_3", "CD2_3"] {
        neutral(header, name, 0.0, "the place of a pixel depends on a third axis")?;
    }
    Ok(())
}

/// Degrees in the unit of an axis.
fn unit(header: &Header, name: &str) -> Result<f64, FileProblem> {
    let unit = header.text(name)?.unwrap_or("deg");
    match unit.to_ascii_lowercase().as_str() {
        "" | "deg" | "degree" | "degrees" => Ok(1.0),
        "arcmin" => Ok(1.0 / 60.0),
        "arcsec" => Ok(1.0 / 3600.0),
        "mas" => Ok(1.0 / 3_600_000.0),
        "rad" => Ok(1.0_f64.to_degrees()),
        _ => Err(keyword(name, format!("is '{unit}': use deg, arcmin, arcsec, mas or rad"))),
    }
}

/// From pixels to degrees: CD, or CDELT with PC or CROTA (Greisen & Calabretta 2002 §2.1, 6.1).
fn matrix(header: &Header, latitude: usize, units: [f64; 2]) -> Result<[[f64; 2]; 2], FileProblem> {
    let elements = |letters: &str| -> Result<[[Option<f64>; 2]; 2], FileProblem> {
        // Some have the form of a draft: PC001002 for PC1_2.
        let element = |row, column| match header.number(&format!("{letters}{row}_{column}"))? {
            Some(number) => Ok(Some(number)),
            None => header.number(&format!("{letters}00{row}00{column}")),
        };
        Ok([[element(1, 1)?, element(1, 2)?], [element(2, 1)?, element(2, 2)?]])
    };
    let by_rows = |element: &dyn Fn(usize, usize) -> f64| {
        [0, 1].map(|row| [0, 1].map(|column| units[row] * element(row, column)))
    };
    let (cd, pc) = (elements("CD")?, elements("PC")?);
    let any = |matrix: &[[Option<f64>; 2]; 2]| matrix.iter().flatten().any(Option::is_some);
    if any(&cd) {
        if any(&pc) {
            return Err(keyword(
                "PCi_j",
                "stands beside CDi_j, which says the same in another way",
            ));
        }
        // Those left out are zero. CDELT and CROTA are there for old readers.
        return Ok(by_rows(&|row, column| cd[row][column].unwrap_or(0.0)));
    }
    let scale = [header.number("CDELT1")?, header.number("CDELT2")?];
    let scale = match scale {
        [Some(first), Some(second)] => [first, second],
        [None, None] if any(&pc) => [1.0, 1.0],
        [None, None] => return Err(missing("CD1_1", "the size of a pixel on the sky; or CDELT1")),
        [first, _] => {
            let name = if first.is_none() { "CDELT1" } else { "CDELT2" };
            return Err(missing(name, "the size of a pixel on the sky"));
        }
    };
    let turn = rotation(header, latitude)?;
    if any(&pc) {
        if turn != 0.0 {
            return Err(keyword(
                "PCi_j",
                "stands beside CROTA, which says the same in another way",
            ));
        }
        let default = |row, column| if row == column { 1.0 } else { 0.0 };
        return Ok(by_rows(&|row, column| {
            scale[row] * pc[row][column].unwrap_or(default(row, column))
        }));
    }
    let scale = [scale[0] * units[0], scale[1] * units[1]];
    let (sin, cos) = sin_cos(if latitude == 1 { turn } else { -turn });
    Ok([[scale[0] * cos, -scale[1] * sin], [scale[0] * sin, scale[1] * cos]])
}

/// CROTA of the axis of declination. The other one is left out, or says the same.
fn rotation(header: &Header, latitude: usize) -> Result<f64, FileProblem> {
    let names = ["CROTA1", "CROTA2"];
    let turn = header.number(names[latitude])?.unwrap_or(0.0);
    match header.number(names[1 - latitude])? {
        Some(other) if other != 0.0 && other != turn => {
            let trouble = format!("is {other}, but {} is {turn}", names[latitude]);
            Err(keyword(names[1 - latitude], trouble))
        }
        _ => Ok(turn),
    }
}

/// The polynomials of SIP, with the place itself as their first term; none if they are not used.
fn sip(header: &Header, used: bool) -> Result<Option<Polynomials>, FileProblem> {
    let orders = [header.integer("A_ORDER")?, header.integer("B_ORDER")?];
    let names = ["A_ORDER", "B_ORDER"];
    if !used && orders == [None, None] {
        return Ok(None);
    }
    let mut terms = [[1, 0, 0], [0, 1, 0]].map(|powers| vec![Term { factor: 1.0, powers }]);
    for axis in 0..2 {
        let order = orders[axis].ok_or_else(|| {
            missing(names[axis], "the distortion SIP that CTYPE1 has, or A_ORDER")
        })?;
        if !(0..=MAX_ORDER).contains(&order) {
            return Err(keyword(
                names[axis],
                format!("is {order}, should be from 2 to {MAX_ORDER}"),
            ));
        }
        let order = order as i32;
        for (a, b) in (0..=order).flat_map(|a| (0..=order - a).map(move |b| (a, b))) {
            let name = format!("{}_{a}_{b}", ["A", "B"][axis]);
            let factor = header.number(&name)?.unwrap_or(0.0);
            if factor != 0.0 && !used {
                return Err(keyword(
                    "CTYPE1",
                    format!("has no -SIP at its end, but {name} is {factor}"),
                ));
            }
            if factor != 0.0 && order < 2 {
                return Err(keyword(names[axis], format!("is {order}, but {name} is {factor}")));
            }
            if factor != 0.0 {
                terms[axis].push(Term { factor, powers: [a, b, 0] });
            }
        }
    }
    Ok(used.then_some(Polynomials(terms)))
}

fn is_zenithal(code: &str) -> bool {
    ["AIR", "ARC", "AZP", "NCP", "SIN", "STG", "SZP", "TAN", "ZEA", "ZPN"].contains(&code)
}

/// The keywords PVi_m.
struct Parameters {
    /// Those of the axis of right ascension, if they are of TPV.
    longitude: Vec<Option<f64>>,
    /// Those of the axis of declination: of the projection.
    latitude: Vec<Option<f64>>,
    reference: Option<(f64, f64)>,
    lonpole: Option<f64>,
    latpole: Option<f64>,
}

impl Parameters {
    fn read(header: &Header, axes: &CelestialAxes) -> Result<Self, FileProblem> {
        let (longitude, latitude) = axes.numbers();
        // Most headers have none, and an index asks many headers.
        let has_any = header.has_keyword_with("PV");
        let all = |axis: usize| -> Result<Vec<Option<f64>>, FileProblem> {
            if !has_any {
                return Ok(vec![None; MAX_PARAMETER + 1]);
            }
            (0..=MAX_PARAMETER).map(|m| header.number(&format!("PV{axis}_{m}"))).collect()
        };
        let mut read = Self {
            longitude: all(longitude)?,
            latitude: all(latitude)?,
            reference: None,
            lonpole: None,
            latpole: None,
        };
        if axes.code == "TPV" {
            // The convention has 1 for these, and WCSLIB 0.
            for (axis, own) in [(longitude, &read.longitude), (latitude, &read.latitude)] {
                own[1].ok_or_else(|| {
                    missing(&format!("PV{axis}_1"), "TPV, which is read in two ways without it")
                })?;
            }
            return Ok(read);
        }
        if !has_any {
            return Ok(read);
        }
        let taken = match axes.code.as_str() {
            // Some writers of SIP leave the parameters of another distortion behind; CTYPE says
            // which one is meant.
            "TAN" if axes.sip => return Ok(read),
            "ZPN" => 0..30,
            "SZP" => 1..4,
            "AZP" | "SIN" | "CYP" | "COP" | "COE" | "COD" | "COO" | "HPX" => 1..3,
            "AIR" | "CEA" => 1..2,
            _ => 0..0,
        };
        let hint = if axes.code == "TAN" { "; is it TPV?" } else { "" };
        let trouble = format!("{} has no such parameter{hint}", axes.code);
        for m in (0..=MAX_PARAMETER).filter(|m| !taken.contains(m)) {
            neutral(header, &format!("PV{latitude}_{m}"), 0.0, &trouble)?;
        }
        for m in (5..=MAX_PARAMETER).chain([0]) {
            neutral(header, &format!("PV{longitude}_{m}"), 0.0, &trouble)?;
        }
        let own = &read.longitude;
        read.reference = match (own[1], own[2]) {
            (None, None) => None,
            // Headers of zenithal projections have these keywords for other purposes, such as TPV.
            (longitude, latitude)
                if is_zenithal(&axes.code) && (longitude, latitude) != (Some(0.0), Some(90.0)) =>
            {
                return Err(keyword(&format!("PV{}_1", axes.numbers().0), trouble));
            }
            (Some(longitude), Some(latitude)) if latitude.abs() <= 90.0 => {
                Some((longitude, latitude))
            }
            _ => {
                let trouble = "with the next one, is no native longitude and latitude";
                return Err(keyword(&format!("PV{}_1", axes.numbers().0), trouble));
            }
        };
        (read.lonpole, read.latpole) = (own[3], own[4]);
        Ok(read)
    }

    /// The parameter m of the projection, or its default.
    fn or(&self, m: usize, default: f64) -> f64 {
        self.latitude[m].unwrap_or(default)
    }

    fn tpv(&self) -> Polynomials {
        let terms = |own: &[Option<f64>], swapped: bool| {
            let term = |(m, powers): (usize, [i32; 3])| {
                let factor = own[m].unwrap_or(0.0);
                let [this, other, radius] = powers;
                let powers = if swapped { [other, this, radius] } else { powers };
                (factor != 0.0).then_some(Term { factor, powers })
            };
            TPV_TERMS.into_iter().enumerate().filter_map(term).collect()
        };
        Polynomials([terms(&self.longitude, false), terms(&self.latitude, true)])
    }

    fn map(&self, axes: &CelestialAxes, dec: f64) -> Result<Box<dyn MapProjection>, FileProblem> {
        let code = axes.code.as_str();
        let zenithal = match code {
            "TAN" | "TPV" => Some(Zenithal::Tan),
            "STG" => Some(Zenithal::Stg),
            "ARC" => Some(Zenithal::Arc),
            "ZEA" => Some(Zenithal::Zea),
            "SIN" => Some(Zenithal::Slant(Slant::Far(self.or(1, 0.0), self.or(2, 0.0)))),
            "NCP" => {
                let (sin, cos) = sin_cos(dec);
                (sin != 0.0).then(|| Zenithal::Slant(Slant::Far(0.0, cos / sin)))
            }
            "AIR" => Zenithal::air(self.or(1, 90.0)),
            "AZP" => Zenithal::azp(self.or(1, 0.0), self.or(2, 0.0)),
            "SZP" => Zenithal::szp(self.or(1, 0.0), self.or(2, 0.0), self.or(3, 90.0)),
            "ZPN" => Zenithal::zpn(
                self.latitude[..30].iter().map(|factor| factor.unwrap_or(0.0)).collect(),
            ),
            _ => None,
        };
        let cylindrical = match code {
            "CAR" => Some(Cylindrical::Car),
            "MER" => Some(Cylindrical::Mer),
            "SFL" => Some(Cylindrical::Sfl),
            "PAR" => Some(Cylindrical::Par),
            "MOL" => Some(Cylindrical::Mol),
            "AIT" => Some(Cylindrical::Ait),
            "CEA" => Some(self.or(1, 1.0))
                .filter(|squeeze| *squeeze > 0.0 && *squeeze <= 1.0)
                .map(Cylindrical::Cea),
            "CYP" => {
                let (mu, lambda) = (self.or(1, 1.0), self.or(2, 1.0));
                (lambda != 0.0 && mu + lambda != 0.0).then_some(Cylindrical::Cyp { mu, lambda })
            }
            _ => None,
        };
        let other = || -> Option<Box<dyn MapProjection>> {
            Some(match code {
                "HPX" => Box::new(Healpix::new(self.or(1, 4.0), self.or(2, 3.0))?),
                _ => Box::new(Conic::new(code, self.latitude[1]?, self.or(2, 0.0))?),
            })
        };
        let zenithal = zenithal.map(|map| Box::new(map) as Box<dyn MapProjection>);
        let cylindrical = cylindrical.map(|map| Box::new(map) as Box<dyn MapProjection>);
        zenithal.or(cylindrical).or_else(other).ok_or_else(|| {
            let latitude = axes.numbers().1;
            keyword(
                "CTYPE1",
                format!("{code} with its parameters, PV{latitude}_m, is no projection"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_of_tpv_are_numbered_as_the_convention_does() {
        for (m, powers) in [
            (0, [0, 0, 0]),
            (2, [0, 1, 0]),
            (3, [0, 0, 1]),
            (4, [2, 0, 0]),
            (11, [0, 0, 3]),
            (12, [4, 0, 0]),
            (22, [0, 5, 0]),
            (23, [0, 0, 5]),
            (30, [0, 6, 0]),
            (31, [7, 0, 0]),
            (39, [0, 0, 7]),
        ] {
            assert_eq!(TPV_TERMS[m], powers, "PV1_{m}");
        }
    }
}
