//! `bella images`: shows how a network sees image files, to check the pixels or the speed.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use tch::{Device, Kind};

use crate::base::files::expect_writable;
use crate::base::small::Usage;
use crate::data::batches::{SampleSet, in_order};
use crate::data::read::npy::write_images;
use crate::data::{Centre, Decode, Files, Inputs, Interpolation, Request, Resize, Split};
use crate::machine::cores;
use crate::model::{Normalize, Preparation, Preprocess};
use crate::predict::inputs::collect;

/// Decode and resize image files as in training; write the bytes, or print the images per second.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella images photos/ --size 224 --output pixels.npy\n  \
    bella images photos/ --cache cache/ --workers 2 --epochs 5")]
pub struct ImagesArgs {
    /// Image files, folders (sorted), or - for a list of paths on standard input.
    #[arg(required = true)]
    paths: Vec<PathBuf>,

    /// Height and width in pixels.
    #[arg(long, default_value_t = 224, value_parser = clap::value_parser!(u32).range(1..=4096))]
    size: u32,

    /// Way of resizing images.
    #[arg(long, default_value = "shorter-side-crop")]
    resize: Resize,

    /// Filter for resizing images.
    #[arg(long, default_value = "bicubic")]
    interpolation: Interpolation,

    /// Share of the resized shorter side that the centre crop keeps, as timm's crop_pct.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = parse_share)]
    crop_pct: f64,

    /// Turn images by their EXIF orientation, as `bella predict` and one's own folders do.
    #[arg(long)]
    exif_orientation: bool,

    /// Write the pixels to this file, as bytes [N, 3, size, size].
    #[arg(short = 'o', long, value_name = "FILE.npy")]
    output: Option<PathBuf>,

    /// Folder of decoded images, which is read first and written.
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,

    /// Number of timed passes over the images, normalised and in batches, as training reads them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    epochs: u32,

    /// Images per batch.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch_size: u32,

    /// Threads that decode images [default: all cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
}

pub fn run(args: &ImagesArgs) -> Result<()> {
    if args.resize == Resize::None {
        return Err(Usage("--resize none: use shorter-side-crop or stretch".into()).into());
    }
    args.output.iter().try_for_each(|path| expect_writable(path))?;
    let inputs = collect(&args.paths, &mut std::io::stdin().lock())?;
    let problem = inputs.images.iter().find_map(|input| input.problem.clone());
    problem.map_or(Ok(()), |why| Err(anyhow::anyhow!(why)))?;
    let workers = args.workers.map_or_else(cores, usize::from);
    let bar = crate::base::logging::bar(inputs.images.len() as u64, "packing");
    let request = Request {
        image_size: args.size as usize,
        interpolation: args.interpolation,
        crop_pct: args.crop_pct,
        centre: Centre::Even,
        cache: args.cache.as_deref(),
        memory_bytes: 0,
        keeps_corrupt: false,
        workers,
        progress: &|done, _| bar.set_position(done as u64),
    };
    let paths: Vec<PathBuf> = inputs.images.into_iter().map(|input| input.path).collect();
    let decode = Decode::new(args.resize, args.exif_orientation, &request, &paths[0])?;
    let files = Files::new(paths, decode).with_cache(&request)?;
    bar.finish_and_clear();
    if let Some(output) = &args.output {
        write_images(output, &files, workers)?;
        tracing::info!("{}: {} images of {} x {}", output.display(), files.paths.len(), args.size, args.size);
    }
    if args.epochs > 0 { time(args, files, workers) } else { Ok(()) }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok().filter(|share| (0.1..=1.0).contains(share));
    share.ok_or_else(|| "must be a number from 0.1 to 1".to_string())
}

/// Prints the images per second of each pass.
fn time(args: &ImagesArgs, files: Files, workers: usize) -> Result<()> {
    tch::set_num_threads(1);
    let count = files.paths.len();
    let split = Split::new("images", Inputs::Files(files), vec![0; count]);
    let set = SampleSet::new(split, Device::Cpu, workers)?;
    let size = i64::from(args.size);
    let preprocess = Preprocess::new(size, Normalize::CLIP, args.interpolation, (Device::Cpu, Kind::Float));
    let indices: Vec<u32> = (0..count as u32).collect();
    for epoch in 1..=args.epochs {
        let started = Instant::now();
        for batch in set.batches(in_order(&indices, args.batch_size as usize)) {
            drop(preprocess.prepare(&batch?.samples.for_all()));
        }
        println!("epoch {epoch}: {:.1} images/s", count as f64 / started.elapsed().as_secs_f64());
    }
    Ok(())
}
