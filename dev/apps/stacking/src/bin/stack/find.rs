//! `stack find`: which frames show the objects of a list.

use std::path::{Path, PathBuf};

use eyas_stacking::error::{FileProblem, StackingError};
use eyas_stacking::find::{self, Found, Hit};
use eyas_stacking::index::FrameIndex;
use eyas_stacking::objects::ListedObject;
use eyas_stacking::output;
use eyas_stacking::report::NotStacked;

/// Find the frames that show the objects of a list.
///
/// A line of the tasks is frame,ra,dec,hdu,band,weight,name: one for each object and each image
/// that shows its whole region, frame by frame. With --out-lists, it is frame,list,hdu,objects: one
/// for each image, with a list for `stack --list`.
#[derive(clap::Args)]
pub(crate) struct FindArgs {
    /// The index, as `stack index` writes it
    #[arg(long, value_name = "INDEX")]
    index: PathBuf,
    /// The list: CSV, columns between spaces, or VOTable, with the columns ra and dec (degrees),
    /// and maybe band, weight and name
    #[arg(long, value_name = "LIST")]
    list: PathBuf,
    /// Band of objects without one; without this, they are found in every band
    #[arg(long, value_name = "BAND")]
    band: Option<String>,
    /// Edge of the region around an object, pixels
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=8192))]
    size: u16,
    /// Write the tasks here
    #[arg(long, value_name = "CSV")]
    out_tasks: PathBuf,
    /// Write a list of the objects of each image into this directory
    #[arg(long, value_name = "DIR")]
    out_lists: Option<PathBuf>,
    /// Write which objects are not found, with the reason, here: .json, or else CSV
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Pass over rows of the list that are no objects; the report has them
    #[arg(long)]
    keep_going: bool,
}

pub(crate) fn find(args: &FindArgs) -> Result<(), StackingError> {
    let index = FrameIndex::read(&args.index)?;
    let mut rows = Vec::new();
    let mut objects = crate::read_list(&args.list, args.keep_going, &mut rows)?;
    for object in &mut objects {
        if object.band.is_none() {
            object.band = args.band.as_deref().map(Box::from);
        }
    }
    let found = find::find(&index, &objects, args.size.into()).map_err(|problem| {
        let is_of_list = matches!(problem, FileProblem::List { .. });
        StackingError::new(if is_of_list { &args.list } else { &args.index }, problem)
    });
    let Found { hits, found, not_found } = found?;
    let (bad, missing) = (rows.len(), not_found.len());
    rows.extend(not_found);
    let tasks = match &args.out_lists {
        None => hits.iter().map(|&hit| task(&index, &objects, hit)).collect(),
        Some(directory) => write_lists(directory, &index, &objects, &hits)?,
    };
    output::write_whole(&args.out_tasks, &csv(&args.out_tasks, &tasks)?)?;
    if let Some(report) = &args.report {
        NotStacked { rows }.write(report)?;
    }
    let images = hits.chunk_by(|one, other| one.image == other.image).count();
    println!(
        "objects={}\tfound={found}\tnot_found={missing}\tbad={bad}\tregions={}\timages={images}\t\
         tasks={}",
        objects.len() + bad,
        hits.len(),
        tasks.len()
    );
    Ok(())
}

/// The fields of a line for one object in one image.
fn task(index: &FrameIndex, objects: &[ListedObject], hit: Hit) -> Vec<String> {
    let (image, object) = (&index.images()[hit.image as usize], &objects[hit.object as usize]);
    let mut fields = vec![image.frame.clone()];
    let [ra, dec, rest @ ..] = fields_of(object, image.band.as_deref());
    fields.extend([ra, dec, image.hdu.to_string()]);
    fields.extend(rest);
    fields
}

/// Right ascension, declination, band, weight and name.
fn fields_of(object: &ListedObject, band: Option<&str>) -> [String; 5] {
    let name = object.name.as_deref().unwrap_or_default().to_owned();
    let band = object.band.as_deref().or(band).unwrap_or_default().to_owned();
    [
        object.place.ra.to_string(),
        object.place.dec.to_string(),
        band,
        object.weight.to_string(),
        name,
    ]
}

/// Writes a list for each image, and returns the lines that name them.
fn write_lists(
    directory: &Path,
    index: &FrameIndex,
    objects: &[ListedObject],
    hits: &[Hit],
) -> Result<Vec<Vec<String>>, StackingError> {
    std::fs::create_dir_all(directory)
        .map_err(|error| StackingError::new(directory, FileProblem::io("make")(error)))?;
    let mut tasks = Vec::new();
    for of_image in hits.chunk_by(|one, other| one.image == other.image) {
        let number = of_image[0].image;
        let image = &index.images()[number as usize];
        let path = directory.join(format!("{number:07}.csv"));
        let header = ["ra", "dec", "band", "weight", "name"].map(str::to_owned).to_vec();
        let rows = of_image
            .iter()
            .map(|hit| fields_of(&objects[hit.object as usize], image.band.as_deref()).to_vec());
        let lines: Vec<_> = std::iter::once(header).chain(rows).collect();
        output::write_whole(&path, &csv(&path, &lines)?)?;
        tasks.push(vec![
            image.frame.clone(),
            path.display().to_string(),
            image.hdu.to_string(),
            of_image.len().to_string(),
        ]);
    }
    Ok(tasks)
}

fn csv(path: &Path, lines: &[Vec<String>]) -> Result<Vec<u8>, StackingError> {
    let write = || {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for line in lines {
            writer.write_record(line)?;
        }
        writer.into_inner().map_err(csv::IntoInnerError::into_error)
    };
    write().map_err(|error| StackingError::new(path, FileProblem::io("write")(error)))
}
