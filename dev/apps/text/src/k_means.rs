//! One pass of k-means (Lloyd's algorithm): each point goes to its nearest centroid, and each
//! centroid moves to the mean of its points.
//!
//! Points and centroids are lines of numbers between commas, such as `1.5,-2`. Between map and
//! reduce a line is `old centroid TAB count TAB sums`. The reduce writes `new centroid TAB old
//! centroid TAB count`; its output is the list of centroids of the next pass. Means are rounded to
//! 9 decimals, towards zero, so that the result does not depend on how the points were divided.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

use crate::pieces::{self, key_and_value};
use crate::trouble::Trouble;
use crate::units;

/// A sum of points.
struct Sum {
    count: u64,
    sums: Vec<i128>,
}

/// Reads the centroids, the first column of each line, in the order of their numbers, so that each
/// program breaks ties alike.
pub fn centroids(files: &[PathBuf]) -> Result<Vec<Vec<i64>>, Trouble> {
    let mut found = Vec::new();
    for path in files {
        let file = File::open(path).map_err(Trouble::Read)?;
        let mut number = 0;
        pieces::lines(BufReader::new(file), |line| {
            number += 1;
            let point = point(key_and_value(line).0);
            found.push(point.ok_or(Trouble::Line { line: number, wrong: NO_POINT })?);
            Ok(())
        })?;
    }
    found.sort_unstable();
    found.dedup();
    let Some(first) = found.first() else {
        return Err(Trouble::Line { line: 1, wrong: "there is no centroid in the files" });
    };
    if found.iter().any(|centroid| centroid.len() != first.len()) {
        let wrong = "the centroids in the files have different numbers of columns";
        return Err(Trouble::Line { line: 1, wrong });
    }
    Ok(found)
}

const NO_POINT: &str = "it is no point: write numbers such as 1.5,-2, up to 9 decimals each";

/// Writes, for each centroid, the number and the sums of the points that are nearest to it; also
/// of a centroid without points, so that it stays.
pub fn map(
    centroids: &[Vec<i64>],
    input: impl BufRead,
    output: &mut impl Write,
) -> Result<(), Trouble> {
    let dimensions = centroids[0].len();
    let mut nearest = Nearest::new(centroids);
    let empty = || Sum { count: 0, sums: vec![0; dimensions] };
    let mut sums: Vec<_> = centroids.iter().map(|_| empty()).collect();
    let (mut number, mut point) = (0, Vec::with_capacity(dimensions));
    pieces::lines(input, |line| {
        number += 1;
        let wrong = |wrong| Trouble::Line { line: number, wrong };
        read_point(line, &mut point).ok_or(wrong(NO_POINT))?;
        if point.len() != dimensions {
            return Err(wrong("it has another number of columns than the centroids"));
        }
        add(&mut sums[nearest.of(&point)], 1, &point).ok_or(wrong(OVERFLOW))
    })?;
    for (centroid, sum) in centroids.iter().zip(&sums) {
        let centroid = text(centroid.iter().map(|units| i128::from(*units)));
        writeln!(output, "{centroid}\t{}\t{}", sum.count, numbers(&sum.sums))?;
    }
    Ok(())
}

const OVERFLOW: &str = "the sum of the points is too large";

/// Adds up the lines of each old centroid, and writes them as `map` does.
pub fn combine(input: impl BufRead, output: &mut impl Write) -> Result<(), Trouble> {
    by_centroid(input, |old, sum| {
        output.write_all(old)?;
        Ok(writeln!(output, "\t{}\t{}", sum.count, numbers(&sum.sums))?)
    })
}

/// Adds up the lines of each old centroid, and writes its new place.
pub fn reduce(input: impl BufRead, output: &mut impl Write) -> Result<(), Trouble> {
    by_centroid(input, |old, Sum { count, sums }| {
        let mean = sums.iter().map(|sum| sum / i128::from((*count).max(1)));
        match count {
            0 => output.write_all(old)?,
            _ => output.write_all(text(mean).as_bytes())?,
        }
        output.write_all(b"\t")?;
        output.write_all(old)?;
        Ok(writeln!(output, "\t{count}")?)
    })
}

/// Whether each centroid in the output of `reduce` has moved by at most `within` in each dimension.
pub fn is_settled(input: impl BufRead, within: i64) -> Result<bool, Trouble> {
    let (mut number, mut is_settled) = (0, true);
    pieces::lines(input, |line| {
        number += 1;
        let (new, rest) = key_and_value(line);
        let places = (point(new), rest.and_then(|rest| point(key_and_value(rest).0)));
        let (Some(new), Some(old)) = places else {
            return Err(Trouble::Line { line: number, wrong: NO_POINT });
        };
        is_settled &= new.iter().zip(&old).all(|(new, old)| (new - old).abs() <= within);
        Ok(())
    })?;
    Ok(is_settled && number > 0)
}

/// Calls `each` for every old centroid with the sum of its lines.
fn by_centroid(
    input: impl BufRead,
    mut each: impl FnMut(&[u8], &Sum) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let mut under_way: Option<(Vec<u8>, Sum)> = None;
    let mut number = 0;
    pieces::lines(input, |line| {
        number += 1;
        let wrong = |wrong| Trouble::Line { line: number, wrong };
        let (old, rest) = key_and_value(line);
        let parsed = rest.map(key_and_value).and_then(|(count, sums)| {
            let count = str::from_utf8(count).ok()?.parse::<u64>().ok()?;
            let sums = sums?.split(|byte| *byte == b',');
            let sums = sums.map(|sum| str::from_utf8(sum).ok()?.parse::<i128>().ok());
            Some((count, sums.collect::<Option<Vec<_>>>()?))
        });
        let (count, sums) = parsed.ok_or(wrong("there is no count and sums after the centroid"))?;
        match &mut under_way {
            Some((key, sum)) if key == old && sum.sums.len() == sums.len() => {
                return add(sum, count, &sums).ok_or(wrong(OVERFLOW));
            }
            Some((key, sum)) => each(key, sum)?,
            None => {}
        }
        under_way = Some((old.to_vec(), Sum { count, sums }));
        Ok(())
    })?;
    under_way.map_or(Ok(()), |(key, sum)| each(&key, &sum))
}

fn add<T: Copy + Into<i128>>(sum: &mut Sum, count: u64, sums: &[T]) -> Option<()> {
    sum.count = sum.count.checked_add(count)?;
    for (sum, other) in sum.sums.iter_mut().zip(sums) {
        *sum = sum.checked_add((*other).into())?;
    }
    Some(())
}

/// Finds the nearest centroid of a point.
struct Nearest {
    /// The first coordinate of each centroid, then the second one of each, and so on: so a
    /// processor works on several centroids at once.
    coordinates: Vec<f64>,
    /// Squares of the distances from the last point.
    squares: Vec<f64>,
}

impl Nearest {
    /// Centroids that all have the same number of dimensions.
    fn new(centroids: &[Vec<i64>]) -> Self {
        let dimensions = 0..centroids[0].len();
        let of_dimension = |dimension: usize| centroids.iter().map(move |place| place[dimension]);
        let coordinates = dimensions.flat_map(of_dimension).map(|units| units as f64).collect();
        Nearest { coordinates, squares: vec![0.0; centroids.len()] }
    }

    /// The first of the nearest centroids.
    fn of(&mut self, point: &[i64]) -> usize {
        self.squares.fill(0.0);
        for (coordinates, at) in self.coordinates.chunks_exact(self.squares.len()).zip(point) {
            let at = *at as f64;
            for (square, coordinate) in self.squares.iter_mut().zip(coordinates) {
                *square += (coordinate - at) * (coordinate - at);
            }
        }
        let mut best = (0, f64::INFINITY);
        for (place, square) in self.squares.iter().enumerate() {
            if *square < best.1 {
                best = (place, *square);
            }
        }
        best.0
    }
}

fn point(text: &[u8]) -> Option<Vec<i64>> {
    let mut point = Vec::new();
    read_point(text, &mut point)?;
    Some(point)
}

/// Reads a point in place of another one.
fn read_point(mut text: &[u8], point: &mut Vec<i64>) -> Option<()> {
    point.clear();
    loop {
        let (number, rest) = units::parse_first(text)?;
        point.push(number);
        match rest.split_first() {
            Some((b',', rest)) => text = rest,
            Some(_) => return None,
            None => return Some(()),
        }
    }
}

fn text(point: impl Iterator<Item = i128>) -> String {
    point.map(units::format).collect::<Vec<_>>().join(",")
}

fn numbers(sums: &[i128]) -> String {
    sums.iter().map(i128::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(points: &str) -> Result<String, String> {
        let centroids = [point(b"0,0").unwrap(), point(b"10,0").unwrap()];
        let mut output = Vec::new();
        map(&centroids, points.as_bytes(), &mut output).map_err(|trouble| trouble.to_string())?;
        Ok(String::from_utf8(output).unwrap())
    }

    fn reduced(lines: &str) -> String {
        let mut output = Vec::new();
        reduce(lines.as_bytes(), &mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn centroids_move_to_the_mean_of_their_points() {
        let [zero, ten] = ["0.000000000,0.000000000", "10.000000000,0.000000000"];
        let lines = mapped("1,1\n2,-2\n5,0\n").unwrap();
        assert_eq!(lines, format!("{zero}\t3\t8000000000,-1000000000\n{ten}\t0\t0,0\n"));
        // However the points are divided, the sum is the same.
        let divided = [mapped("1,1\n").unwrap(), mapped("2,-2\n5,0\n").unwrap()].concat();
        let mut divided: Vec<_> = divided.lines().map(|line| format!("{line}\n")).collect();
        divided.sort();
        let expected = format!("2.666666666,-0.333333333\t{zero}\t3\n{ten}\t{ten}\t0\n");
        assert_eq!(
            (reduced(&lines), reduced(&divided.concat())),
            (expected.clone(), expected.clone())
        );
        let mut combined = Vec::new();
        combine(divided.concat().as_bytes(), &mut combined).unwrap();
        assert_eq!(String::from_utf8(combined).unwrap(), lines);
        let settled = |within: &str| {
            is_settled(expected.as_bytes(), units::parse(within.as_bytes()).unwrap()).unwrap()
        };
        assert_eq!((settled("2.7"), settled("2.6")), (true, false));
    }

    #[test]
    fn centroids_have_as_many_columns_as_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let (plane, line) = (file("plane", "3,4\n1,2\n"), file("line", "5\n"));
        let one = 1_000_000_000;
        let sorted = vec![vec![one, 2 * one], vec![3 * one, 4 * one]];
        assert_eq!(centroids(std::slice::from_ref(&plane)).unwrap(), sorted);
        let refused = centroids(&[plane, line]).unwrap_err().to_string();
        assert!(refused.contains("different numbers of columns"), "{refused}");
    }

    #[test]
    fn wrong_lines_are_refused() {
        assert!(mapped("1,1\n1\n").unwrap_err().starts_with("line 2: it has another number"));
        assert!(mapped("1,x\n").unwrap_err().starts_with("line 1: it is no point"));
        assert!(reduce(&b"1,1\t2\n"[..], &mut Vec::new()).is_err());
        assert!(!is_settled(&b""[..], 0).unwrap(), "nothing is no result");
    }
}
