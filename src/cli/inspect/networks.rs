//! The lines that `bella inspect` prints about networks of texts, also those that see images, about modules, and about the
//! classifier of a folder.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use tch::Kind;

use crate::base::small::Usage;
use crate::hub::TOKENIZER;
use crate::machine::device::precision_name;
use crate::model::archive::Archive;
use crate::model::families::decoders::{Decoder, Mlp, NormKind};
use crate::model::folder::texts::class_names;
use crate::model::folder::{Preprocessing, has_weights, home};
use crate::model::language::rope::{Rope, Scaling, Yarn};
use crate::model::language::{Geometry, OutputMatrix};
use crate::model::module::{Limit, Opened, Wanted, open};
use crate::model::network::{Network, Parameters, SlotKind};
use crate::model::vit::OwnHead;
use crate::model::{Normalize, encoder, language, sighted};
use crate::schema::Choice;

/// Prints the network at `path`, with the number of trainable parameters at a rank, and returns its parameters.
///
/// # Errors
/// Fails if the network cannot be opened.
pub fn print(path: &Path, rank: i64) -> Result<Parameters> {
    let opened = language::open(path, None, None)?;
    let geometry = &opened.language.geometry;
    let &Geometry { width, mlp, blocks, heads, key_heads, channels, vocabulary, context, eps, output, .. } = geometry;
    let Decoder { model_type, about, .. } = geometry.family;
    println!("file          {}", path.display());
    println!("network       {model_type} ({about}), a language network");
    let gated = if geometry.traits.mlp == Mlp::Plain { "MLP" } else { "gated MLP" };
    println!("transformer   width {width}, {blocks} blocks, {gated} {mlp}");
    println!("heads         {heads} of width {channels}, {key_heads} of keys and values");
    let norm = if geometry.traits.norm == NormKind::Layer { "layer norm" } else { "by the root mean square" };
    println!("norm          {norm}, eps {eps:e}");
    match geometry.ropes.is_empty() {
        true => println!("positions     learned"),
        false => geometry.ropes.iter().for_each(|rope| println!("positions     {}", positions(rope))),
    }
    if let Some(window) = geometry.views.iter().find_map(|view| view.window) {
        let count = geometry.views.iter().filter(|view| view.window.is_some()).count();
        println!("window        {window} tokens in {count} blocks");
    }
    println!("texts         at most {context} tokens of a vocabulary of {vocabulary}");
    let matrix = match output {
        OutputMatrix::Own => "its own",
        OutputMatrix::Embeddings => "the embeddings",
        OutputMatrix::None => "none",
    };
    println!("output matrix {matrix}");
    print_own_head(path, opened.head.as_ref());
    print_checked(&opened.base, opened.stored);
    print_low_rank(&opened.language, rank, "every block", &[1, 3, 5, 20]);
    Ok(opened.base)
}

fn positions(Rope { theta, scaling, channels }: &Rope) -> String {
    let scaling = match scaling {
        Scaling::None => "not scaled".to_string(),
        Scaling::Linear { factor } => format!("scaled by {factor}"),
        Scaling::Dynamic => "not scaled within the texts of training (dynamic)".to_string(),
        Scaling::Llama3 { factor, low, high, original } => {
            format!("scaled as Llama 3.1's by {factor} (from {original} tokens, factors {low} and {high})")
        }
        Scaling::Yarn(Yarn { factor, original, .. }) => format!("scaled by YaRN by {factor} (from {original} tokens)"),
        Scaling::Long { amplitude, .. } => format!("scaled by LongRoPE, times {amplitude}"),
    };
    format!("rotary, base {theta}, {channels} channels, {scaling}")
}

/// Prints a text encoder, as [`print()`] does.
///
/// # Errors
/// Fails if the network cannot be opened.
pub fn print_encoder(path: &Path, rank: i64) -> Result<Parameters> {
    let stated = encoder::Stated::of(path);
    let asked = encoder::Asked { features: stated.features(), ..encoder::Asked::default() };
    let opened = encoder::open(path, &home(path), Limit::default(), asked)?;
    let geometry = &opened.encoder.geometry;
    let encoder::Geometry { width, mlp, blocks, heads, vocabulary, kinds, eps, activation, family, .. } = geometry;
    println!("file          {}", path.display());
    println!("network       {} ({}), a text encoder", family.model_type, family.about);
    let distinct = geometry.distinct();
    let shared = if distinct == *blocks { String::new() } else { format!(" that share the weights of {distinct}") };
    println!("transformer   width {width}, {blocks} blocks{shared}, MLP {mlp} ({})", activation.word());
    println!("heads         {heads} of width {}", width / heads);
    let place = if geometry.traits.norms_first { "before" } else { "behind" };
    println!("norm          {place} each sublayer, eps {eps:e}");
    let kinds = (*kinds).max(1);
    println!("texts         at most {} tokens of a vocabulary of {vocabulary}, of {kinds} kinds", geometry.context());
    let read = if geometry.reads_mean() { "the mean of all tokens" } else { "the first token" };
    let read = if geometry.is_pooled() { format!("a layer on {read}") } else { read.into() };
    let norm = if stated.is_unit(&Some(geometry.features)) { ", divided by its L2 norm" } else { "" };
    println!("features      {read}{norm}");
    if let Some(tokens) = stated.tokens() {
        println!("max_tokens    {tokens} by default, as the folder says (max_seq_length)");
    }
    if let Some(why) = stated.refused() {
        println!("not computed  {why}");
    }
    print_own_head(path, opened.head.as_ref());
    print_checked(&opened.base, opened.stored);
    print_low_rank(&opened.encoder, rank, "every block", &[1, 3, 5, 20]);
    Ok(opened.base)
}

/// Prints a network that sees images, as [`print()`] does.
///
/// # Errors
/// Fails if the network cannot be opened.
pub fn print_seeing(path: &Path, rank: i64) -> Result<Parameters> {
    let asked = Preprocessing::of(path);
    let opened = sighted::open(path, None, asked.normalize.unwrap_or(Normalize::CLIP), None)?;
    let sighted::Opened { network, base, stored, .. } = &opened;
    let Decoder { model_type, about, .. } = network.language.geometry.family;
    let (sight, tower, family) = (&network.sight, &network.sight.tower.geometry, network.sight.eyes.family);
    let &Geometry { width, mlp, blocks, heads, key_heads, channels, vocabulary, context, .. } =
        &network.language.geometry;
    let [size, patches] = [sight.eyes.image_size, sight.patches()];
    println!("file          {}", path.display());
    println!("network       {} on {model_type} ({about}), a language network that sees images", family.model_type);
    println!("image         {size} x {size} px, patch {}, {patches} tokens of the prompt", tower.patch);
    print!("{}", asked.report());
    println!("image tower   width {}, {} of its blocks, MLP {}", tower.width, tower.blocks, tower.mlp);
    println!("projector     {} to {width}, {}", tower.width, family.projector.join(", "));
    println!("transformer   width {width}, {blocks} blocks, gated MLP {mlp}");
    println!("heads         {heads} of width {channels}, {key_heads} of keys and values");
    println!("texts         at most {context} tokens, those of the image among them, of a vocabulary of {vocabulary}");
    let way = if network.reads_prompt_whole() {
        "tokens of a prompt in both directions, those of an answer back"
    } else {
        "back"
    };
    println!("reading       {way}");
    print_checked(base, *stored);
    print_low_rank(network, rank, "every block of the language network", &[1, 2, 5]);
    Ok(opened.base)
}

/// The checks that a folder of weights has passed once it is read.
pub const CHECKED: &str = "every tensor has its place, every place has its tensor, and all shapes agree";

fn print_checked(base: &Parameters, stored: Kind) {
    println!("parameters    {}, stored as {}", base.count(), precision_name(stored));
    println!("check         {CHECKED}");
}

/// Prints the classifier of the folder at a path, if it has one.
pub fn print_own_head(file: &Path, head: Option<&OwnHead>) {
    println!("own head      {}", head.map_or("none".into(), |own| format!("{} classes", own.weight.size()[0])));
    if let Some(names) = class_names(file).filter(|_| head.is_some()) {
        println!("classes       {}", few(&names));
    }
}

/// Returns the first names of a long list.
fn few(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// Prints the number of trainable parameters of a rank for some numbers of particles.
fn print_low_rank(network: &dyn Network, rank: i64, blocks: &str, particles: &[i64]) {
    let slots = network.slots();
    let queries = slots.iter().filter(|slot| ["attn.q", "attn.v"].contains(&slot.target.as_str()));
    let per_rank: i64 = queries.map(|slot| slot.inputs + slot.outputs).sum();
    let counts: Vec<String> = particles.iter().map(|n| format!("n = {n}: {}", n * rank * per_rank)).collect();
    println!("low rank {:<4} queries and values of {blocks}, {}", rank, counts.join(", "));
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
pub fn taken(said: &Said) -> Result<Option<Wanted>> {
    let Said { file, module, image_size, tokenizer } = *said;
    let texts = |tokenizer: PathBuf| Wanted::Texts { tokenizer, limit: Limit::default() };
    match (image_size, tokenizer) {
        (Some(size), _) => return Ok(Some(Wanted::Images(size))),
        (None, Some(folder)) => return Ok(Some(texts(folder.to_path_buf()))),
        (None, None) => {}
    }
    let is_archive = file.is_file() && !has_weights(file)?;
    let archive = if is_archive { Archive::open(file).ok().filter(Archive::takes_texts) } else { None };
    match archive {
        Some(_) if home(file).join(TOKENIZER[0]).is_file() => Ok(Some(texts(home(file)))),
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
pub fn print_module(file: &Path, wanted: &Wanted) -> Result<Parameters> {
    let Opened { module, base, head, running_statistics, tokenizer } = open(file, wanted)?;
    let slots = module.slots();
    let count = |kind: SlotKind| slots.iter().filter(|slot| slot.kind == kind).count();
    println!("file          {}", file.display());
    println!("module        runs by its own forward (checkpoint.kind = \"module\")");
    println!("{}", module.intake().line());
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
