//! The lines that `bella inspect` prints about a module, on images or on texts.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::base::small::Usage;
use crate::model::archive::Archive;
use crate::model::folder::{TOKENIZER, has_weights, home};
use crate::model::module::{Intake, Limit, Opened, Wanted, open};
use crate::model::network::{Network, Parameters, SlotKind};

/// The input of a module, which the command names or the archive shows.
pub enum Taken {
    /// Images of this many pixels per side.
    Images(i64),
    /// Texts by the tokenizer of this folder.
    Texts(PathBuf),
}

/// The options of the command that say what a file is.
pub struct Said<'a> {
    pub file: &'a Path,
    /// Whether it is to be tried as a module.
    pub module: bool,
    pub image_size: Option<i64>,
    pub tokenizer: Option<&'a Path>,
}

/// Returns what the file takes if it is to be tried as a module, or if it is a text encoder; `None` for other networks.
///
/// # Errors
/// Fails if neither the command nor the archive tells, or if a text encoder has no tokenizer.
pub fn taken(said: &Said) -> Result<Option<Taken>> {
    let Said { file, module, image_size, tokenizer } = *said;
    match (image_size, tokenizer) {
        (Some(size), _) => return Ok(Some(Taken::Images(size))),
        (None, Some(folder)) => return Ok(Some(Taken::Texts(folder.to_path_buf()))),
        (None, None) => {}
    }
    let is_archive = file.is_file() && !has_weights(file)?;
    let archive = if is_archive { Archive::open(file).ok().filter(Archive::takes_texts) } else { None };
    match archive {
        Some(_) if home(file).join(TOKENIZER[0]).is_file() => Ok(Some(Taken::Texts(home(file)))),
        Some(archive) => bail!(
            "{}: a text encoder, whose forward takes {} tensors ({}), and no tokenizer.json lies beside it: name the folder of \
             its tokenizer by --tokenizer",
            file.display(),
            archive.inputs().len(),
            archive.inputs().join(", ")
        ),
        None if module => Err(Usage(
            "--module: a module does not tell what it takes: give --image-size for images, or --tokenizer for texts"
                .into(),
        )
        .into()),
        None => Ok(None),
    }
}

/// Prints what a module is, having run it, and returns its parameters.
pub fn print(file: &Path, taken: &Taken) -> Result<Parameters> {
    let wanted = match taken {
        Taken::Images(size) => Wanted::Images(*size),
        Taken::Texts(tokenizer) => Wanted::Texts { tokenizer, limit: Limit::default() },
    };
    let Opened { module, base, head, running_statistics, tokenizer } = open(file, &wanted)?;
    let slots = module.slots();
    let count = |kind: SlotKind| slots.iter().filter(|slot| slot.kind == kind).count();
    println!("file          {}", file.display());
    println!("module        runs by its own forward (checkpoint.kind = \"module\")");
    print_intake(module.intake());
    if let Some(tokenizer) = &tokenizer {
        let padding = tokenizer.padding;
        println!(
            "tokenizer     {}, tokens up to {}, padded on the {} by {}",
            tokenizer.path().display(),
            tokenizer.largest,
            padding.side,
            padding.id
        );
    }
    println!("features      {}", module.feature_width());
    match &head {
        Some(own) => println!("own head      {} classes; its last operation, as a run shows", own.weight.size()[0]),
        None => println!("own head      none: its last operation is no linear layer"),
    }
    println!("parameters    {} besides the own head, stored as f32", base.count());
    println!("low rank      {} linear, {} pointwise", count(SlotKind::Linear), count(SlotKind::Pointwise));
    if running_statistics {
        println!("norms         running statistics stay as they are stored (evaluation mode)");
    }
    if module.kept_bytes() > 0 {
        let mebibytes = module.kept_bytes() as f64 / f64::from(1 << 20);
        println!("memory        a graph keeps {mebibytes:.2} MiB per {}", module.intake().sample());
    }
    Ok(base)
}

fn print_intake(intake: &Intake) {
    match intake {
        Intake::Images(size) => println!("image         {size} x {size} px"),
        Intake::Texts(texts) => {
            let kinds = if texts.inputs == 3 { ", mask and kinds of tokens" } else { " and mask" };
            println!("texts         token ids{kinds}, at most {} tokens here (checkpoint.max_tokens)", texts.tokens);
        }
    }
}
