//! Does stacking show sources that no single frame shows? Tested on made-up surveys of small
//! frames, with fixed seeds.

use std::fs;
use std::path::{Path, PathBuf};

use eyas_stacking::error::StackingError;
use eyas_stacking::fits_read::FitsFile;
use eyas_stacking::frame_work::{FramePlan, FrameReport};
use eyas_stacking::lists;
use eyas_stacking::measure::Measurement;
use eyas_stacking::objects::{ListedObject, SkyObject};
use eyas_stacking::profile::BlockProfile;
use eyas_stacking::projection::Projection;
use eyas_stacking::report::Reason;
use eyas_stacking::stack::{Image, Stack, Weighting};
use eyas_stacking::survey::{NOISE_COUNTS, PSF_SIGMA_PIXELS, SOURCE_FLUX, SurveyPlan};

/// A survey of small plain frames with one object each.
const SMALL: SurveyPlan = SurveyPlan {
    frames: 256,
    objects: 256,
    width: 150,
    height: 140,
    seed: 7,
    gzip: false,
    bands: false,
};

/// Edge of the ROIs cut from small frames, pixels.
const SIZE: usize = 72;

struct Survey {
    directory: tempfile::TempDir,
    plan: SurveyPlan,
}

impl Survey {
    fn write(plan: SurveyPlan) -> Self {
        let directory = tempfile::tempdir().unwrap();
        plan.write(directory.path()).unwrap();
        Self { directory, plan }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn frame(&self, number: u64) -> PathBuf {
        self.path(&self.plan.file_name(number))
    }

    fn list(&self, name: &str) -> Vec<SkyObject> {
        let listed = lists::read(&self.path(name)).unwrap().objects;
        listed.iter().map(|object| object.place).collect()
    }
}

fn add(
    stack: &mut Stack,
    frame: &Path,
    objects: &[SkyObject],
) -> Result<FrameReport, StackingError> {
    add_by(&FramePlan::default(), stack, frame, objects)
}

fn add_by(
    plan: &FramePlan,
    stack: &mut Stack,
    frame: &Path,
    objects: &[SkyObject],
) -> Result<FrameReport, StackingError> {
    let objects: Vec<ListedObject> = objects.iter().map(|&object| object.into()).collect();
    let mut reports = plan.add_frame(stack, frame, &objects, &mut BlockProfile::default())?;
    assert_eq!(reports.len(), 1, "one image in a frame");
    Ok(reports.remove(0))
}

fn empty(size: usize) -> Stack {
    Stack::new(size, Weighting::Objects)
}

/// One task for each frame: object `i` is on frame `i` of a survey with one object a frame.
fn tasks(survey: &Survey, objects: &[SkyObject]) -> Vec<Stack> {
    let task = |(number, &object): (usize, &SkyObject)| {
        let mut stack = empty(SIZE);
        let report = add(&mut stack, &survey.frame(number as u64), &[object]).unwrap();
        assert_eq!((report.stacked, report.outside), (1, 0));
        stack
    };
    objects.iter().enumerate().map(task).collect()
}

fn measure(tasks: &[Stack]) -> Measurement {
    let mut total = empty(SIZE);
    tasks.iter().for_each(|task| total.merge(task));
    Measurement::of(&total.mean().unwrap()).unwrap()
}

/// Mean signal to noise of all stacks of `many` tasks, and the mean noise of their pixels.
fn mean_of_groups(tasks: &[Stack], many: usize) -> (f64, f64) {
    let groups: Vec<Measurement> = tasks.chunks_exact(many).map(measure).collect();
    let mean = |value: fn(&Measurement) -> f64| {
        groups.iter().map(value).sum::<f64>() / groups.len() as f64
    };
    (mean(Measurement::signal_to_noise), mean(|measured| measured.pixel_sigma))
}

#[test]
fn stacking_shows_the_invisible_source_as_the_square_root_of_its_frames() {
    let survey = Survey::write(SMALL);
    let tasks = tasks(&survey, &survey.list("objects.csv"));

    // Invisible in one frame: the brightest pixel is below half the noise, and the aperture does
    // not show more.
    let (one, noise_of_one) = mean_of_groups(&tasks, 1);
    assert!(one < 1.5, "a source of {one} sigma is visible in a single frame");

    // The scatter of one measurement is 1 sigma, and some 8 % of its noise; means of 16 groups of
    // 16 reduce it.
    let (at_16, noise_16) = mean_of_groups(&tasks, 16);
    let (at_64, noise_64) = mean_of_groups(&tasks, 64);
    let (at_256, noise_256) = mean_of_groups(&tasks, 256);
    println!(
        "S/N {one:.2} {at_16:.2} {at_64:.2} {at_256:.2}; noise {noise_of_one:.2e} {noise_256:.2e}"
    );
    assert!(at_256 > 8.0, "no source in 256 frames: {at_256} sigma");
    assert!((1.6..2.4).contains(&(at_64 / at_16)), "16 frames {at_16}, 64 frames {at_64}");
    assert!((3.2..4.8).contains(&(at_256 / at_16)), "16 frames {at_16}, 256 frames {at_256}");
    for (many, noise) in [(16.0_f64, noise_16), (64.0, noise_64), (256.0, noise_256)] {
        let gain = noise_of_one / noise;
        assert!(
            (gain / many.sqrt() - 1.0).abs() < 0.08,
            "{many} frames lower the noise {gain} times"
        );
    }

    // And its flux is right: the aperture holds 86 % of it, a little less for the smoothing of the
    // shift.
    let flux = measure(&tasks).flux / SOURCE_FLUX;
    assert!((0.6..1.1).contains(&flux), "{flux} of the flux put in");
}

#[test]
fn a_stack_of_empty_places_shows_nothing() {
    let survey = Survey::write(SMALL);
    let empty = survey.list("control.csv");
    assert_eq!(empty.len(), 256);
    let measured = measure(&tasks(&survey, &empty));
    assert!(measured.signal_to_noise().abs() < 3.0, "{measured:?}");
}

#[test]
fn planted_places_are_found_to_a_hundredth_of_a_pixel() {
    // Enough frames for several stripes of the sky, both sides of the equator; full size, where
    // errors are largest.
    let plan = SurveyPlan {
        frames: 7000,
        objects: 70_000,
        width: 2048,
        height: 1489,
        seed: 3,
        gzip: false,
        bands: false,
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("frame.fits");
    let mut declinations = Vec::new();
    for number in [0, 1, 2500, 6999] {
        let frame = plan.frame(number);
        declinations.push(frame.centre.1);
        fs::write(&path, frame.file(false)).unwrap();
        let projection = Projection::of(&FitsFile::open(&path).unwrap()).unwrap();
        assert_eq!(frame.sources.len(), 10);
        let corners = [(0.0, 0.0), (2047.0, 1488.0), (0.0, 1488.0), (2047.0, 0.0)];
        for &(x, y) in frame.sources.iter().chain(&corners) {
            let (ra, dec) = frame.sky(x, y);
            let (found_x, found_y) = projection.pixel(ra, dec).unwrap();
            assert!(
                (found_x - x).hypot(found_y - y) < 0.01,
                "({x}, {y}) found at ({found_x}, {found_y})"
            );
            let (back_ra, back_dec) = projection.sky(found_x, found_y).unwrap();
            assert!((back_ra - ra).abs() < 1e-7 && (back_dec - dec).abs() < 1e-7);
        }
    }
    assert!(
        declinations.iter().any(|&dec| dec > 0.1) && declinations.iter().any(|&dec| dec < -0.1)
    );
}

#[test]
fn gzip_and_plain_frames_make_the_same_stack() {
    let plan = SurveyPlan {
        frames: 3,
        objects: 12,
        width: 400,
        height: 300,
        seed: 5,
        gzip: false,
        bands: false,
    };
    let plain = Survey::write(plan);
    let gzip = Survey::write(SurveyPlan { gzip: true, ..plan });
    assert!(fs::read(gzip.frame(0)).unwrap().starts_with(&[0x1f, 0x8b]));
    let objects = plain.list("objects.csv");
    let stack = |survey: &Survey, verify| {
        let mut stack = empty(100);
        for number in 0..plan.frames {
            let plan = FramePlan { verify, ..FramePlan::default() };
            add_by(&plan, &mut stack, &survey.frame(number), &objects).unwrap();
        }
        assert_eq!(stack.summed(), 12);
        stack
    };
    let expected = stack(&plain, false);
    assert_eq!(stack(&gzip, false), expected);
    assert_eq!(stack(&gzip, true), expected);

    // gzip is recognised by content, not by name, also with several members, as bgzip writes.
    let (name, packed) = (gzip.path("frame.dat"), fs::read(gzip.frame(0)).unwrap());
    let whole = fs::read(plain.frame(0)).unwrap();
    let (mut one, mut two) = (empty(100), empty(100));
    add(&mut one, &plain.frame(0), &objects).unwrap();
    fs::write(&name, packed).unwrap();
    add(&mut two, &name, &objects).unwrap();
    assert_eq!(one, two);
    let mut members = Vec::new();
    for part in whole.chunks(100_000) {
        let mut member = flate2::write::GzEncoder::new(&mut members, flate2::Compression::fast());
        std::io::Write::write_all(&mut member, part).unwrap();
        member.finish().unwrap();
    }
    fs::write(&name, members).unwrap();
    let mut three = empty(100);
    add(&mut three, &name, &objects).unwrap();
    assert_eq!(one, three);
}

#[test]
fn calibration_takes_the_sky_away_and_gives_flux() {
    // Frames differ in SKY and CAL. The calibrated background is 0, and its noise NOISE_COUNTS ×
    // CAL.
    let survey =
        Survey::write(SurveyPlan { frames: 6, objects: 6, width: 200, height: 200, ..SMALL });
    let objects = survey.list("control.csv");
    let mut cals = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        let file = FitsFile::open(&survey.frame(number as u64)).unwrap();
        let cal = file.number("CAL", "").unwrap();
        let mut stack = empty(100);
        add(&mut stack, &survey.frame(number as u64), &[*object]).unwrap();
        let image = stack.mean().unwrap();
        let mean = image.pixels.iter().sum::<f64>() / image.pixels.len() as f64;
        // 10,000 pixels of noise 4: a mean within 0.2 counts is 5 sigma; a source adds 0.002.
        assert!((mean / cal).abs() < 0.2, "{} counts of sky left", mean / cal);
        let sigma = Measurement::of(&image).unwrap().pixel_sigma / cal;
        assert!(
            sigma > 0.4 * NOISE_COUNTS && sigma < 1.05 * NOISE_COUNTS,
            "noise of {sigma} counts"
        );
        cals.push(cal);
    }
    cals.dedup();
    assert_eq!(cals.len(), 6, "every frame has its own CAL");
}

#[test]
fn the_shift_puts_a_source_on_the_middle_pixel() {
    // A bright star, drawn by the survey, at several places between pixels.
    let plan = SurveyPlan {
        frames: 1,
        objects: 1,
        width: 200,
        height: 180,
        seed: 2,
        gzip: false,
        bands: false,
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("frame.fits");
    for (x, y) in [(90.0, 80.0), (90.5, 80.5), (90.25, 80.75), (90.99, 80.01), (101.4, 77.6)] {
        let mut frame = plan.frame(0);
        frame.stars = vec![((x, y), 20_000.0)];
        frame.sources.clear();
        fs::write(&path, frame.file(false)).unwrap();
        let (ra, dec) = frame.sky(x, y);
        let mut stack = empty(100);
        add(&mut stack, &path, &[SkyObject { ra, dec }]).unwrap();
        let (found_x, found_y) = centroid(&stack.mean().unwrap());
        assert!(
            (found_x - 50.0).abs() < 0.1 && (found_y - 50.0).abs() < 0.1,
            "({x}, {y}): {found_x}, {found_y}"
        );
    }
}

/// Mean place of the light within 5 PSF widths of the middle.
fn centroid(image: &Image) -> (f64, f64) {
    let (middle, reach) = (image.size / 2, (5.0 * PSF_SIGMA_PIXELS) as usize);
    let (mut light, mut x_light, mut y_light) = (0.0, 0.0, 0.0);
    for y in middle - reach..=middle + reach {
        for x in middle - reach..=middle + reach {
            let pixel = image.pixels[y * image.size + x];
            light += pixel;
            x_light += pixel * x as f64;
            y_light += pixel * y as f64;
        }
    }
    (x_light / light, y_light / light)
}

#[test]
fn objects_at_the_border_or_elsewhere_are_counted_and_left_out() {
    let survey =
        Survey::write(SurveyPlan { frames: 1, objects: 1, width: 400, height: 300, ..SMALL });
    let frame = survey.plan.frame(0);
    let at = |x, y| {
        let (ra, dec) = frame.sky(x, y);
        SkyObject { ra, dec }
    };
    let inside = [at(200.0, 150.0), at(50.2, 50.2), at(348.5, 248.5)];
    let border = [at(49.8, 150.0), at(350.2, 150.0), at(200.0, 10.0), at(200.0, 299.0)];
    let outside =
        [at(-2.0, 150.0), at(200.0, 302.0), SkyObject { ra: frame.centre.0 + 180.0, dec: 0.0 }];
    let all = [&inside[..], &border[..], &outside[..]].concat();

    let mut stack = empty(100);
    let report = add(&mut stack, &survey.frame(0), &all).unwrap();
    let counts = [report.objects, report.stacked, report.border, report.undefined, report.outside];
    assert_eq!(counts, [10, 3, 4, 0, 3]);
    let border = (3..7).map(|number| (number, Some(Reason::Border)));
    let shown: Vec<_> = (0..3).map(|number| (number, None)).chain(border).collect();
    assert_eq!(report.shown, shown);
    assert_eq!((stack.summed(), stack.skipped()), (3, 4));

    let mut only_inside = empty(100);
    add(&mut only_inside, &survey.frame(0), &inside).unwrap();
    assert_eq!(stack.mean(), only_inside.mean());
}

#[test]
fn partial_stacks_add_up_in_files() {
    let survey =
        Survey::write(SurveyPlan { frames: 4, objects: 8, width: 200, height: 200, ..SMALL });
    let objects = survey.list("objects.csv");
    let mut whole = empty(100);
    let mut files = Vec::new();
    for number in 0..4 {
        let mut partial = empty(100);
        add(&mut partial, &survey.frame(number), &objects).unwrap();
        whole.merge(&partial);
        files.push(survey.path(&format!("p{number}.fits")));
        partial.write(&files[number as usize]).unwrap();
        assert_eq!(Stack::read(&files[number as usize]).unwrap(), partial);
    }
    assert_eq!(whole.summed(), 8);
    assert_eq!(Stack::sum(&files).unwrap().unwrap(), whole);

    // A mean is not a sum, and sizes must agree.
    let mean = survey.path("mean.fits");
    whole.write_mean(&mean, &whole.mean().unwrap()).unwrap();
    assert!(Stack::read(&mean).unwrap_err().to_string().contains("it is a mean"));
    empty(50).write(&mean).unwrap();
    let error = Stack::sum([&files[0], &mean]).unwrap_err().to_string();
    assert!(
        error.contains("mean.fits") && error.contains("50 pixels wide, the others 100"),
        "{error}"
    );
}

#[test]
fn the_same_seed_makes_the_same_bytes() {
    let plan = SurveyPlan {
        frames: 3,
        objects: 5,
        width: 100,
        height: 90,
        seed: 1,
        gzip: true,
        bands: false,
    };
    let (one, same, other) =
        (Survey::write(plan), Survey::write(plan), Survey::write(SurveyPlan { seed: 2, ..plan }));
    let names = ["objects.csv", "control.csv", "tasks.csv"].map(str::to_owned);
    for name in names.into_iter().chain((0..3).map(|number| plan.file_name(number))) {
        let bytes = |survey: &Survey| fs::read(survey.path(&name)).unwrap();
        assert_eq!(bytes(&one), bytes(&same), "{name}");
        assert_ne!(bytes(&one), bytes(&other), "{name}");
    }
}
