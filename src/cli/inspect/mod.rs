//! `bella inspect`: prints what a checkpoint is, and how it was checked.

mod networks;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Args;

use self::networks::Said;
use crate::base::small::Usage;
use crate::hub;
use crate::machine::device::precision_name;
use crate::model::OpenedCheckpoint;
use crate::model::archive::trust;
use crate::model::encoder::is_encoder;
use crate::model::folder::Preprocessing;
use crate::model::head::{Head, Training};
use crate::model::language::is_language;
use crate::model::network::Parameters;
use crate::model::recognition::identify::{Evidence, Fixed, Identified, IdentifiedText};
use crate::model::sighted::is_sighted;
use crate::model::vit::Activation;
use crate::model::vit::forward::Vit;
use crate::model::vit::parts::{Parts, Rope};
use crate::schema::{Reader, Tree};
use crate::subspace::low_rank;

/// Print the architecture, parameters and check of a checkpoint.
#[derive(Args, Clone)]
#[command(
    after_help = "Examples:\n  bella inspect dinov2-small/\n  bella inspect ViT-B-32.pt\n  bella inspect resnet50.pt --module --image-size 224\n  bella inspect roberta-base.pt --tokenizer roberta-base/"
)]
pub struct InspectArgs {
    /// A publisher's folder, a file of weights (.safetensors, .pth, .bin), a TorchScript archive (.pt), or a name
    /// (hf://ORG/NAME@REVISION, openai://ViT-B-32).
    file: PathBuf,

    /// Name of the network in timm, if no config beside the weights tells it.
    #[arg(long)]
    architecture: Option<String>,

    /// Number of attention heads, if the self-check does not find it.
    #[arg(long)]
    heads: Option<i64>,

    /// Activation, if the self-check does not find it.
    #[arg(long)]
    activation: Option<Activation>,

    /// Epsilon of LayerNorm, if the self-check does not find it.
    #[arg(long)]
    eps: Option<f64>,

    /// Try the archive as a module that runs by its own forward (checkpoint.kind = "module").
    #[arg(long, conflicts_with_all = ["architecture", "heads", "activation", "eps"])]
    module: bool,

    /// Folder of the tokenizer of a module that takes texts [default: that of the archive].
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["image_size", "architecture", "heads", "activation", "eps"])]
    tokenizer: Option<PathBuf>,

    /// Height and width of a module's images in pixels.
    #[arg(long, value_name = "PIXELS", requires = "module", value_parser = clap::value_parser!(i64).range(1..=4096))]
    image_size: Option<i64>,

    /// Load the archive whatever its code calls; only for one whose origin you know.
    #[arg(long)]
    trust: bool,

    /// Rank at which trainable parameters are counted.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(i64).range(1..=4096))]
    rank: i64,

    /// List every parameter with its shape.
    #[arg(long)]
    parameters: bool,
}

pub fn run(args: &InspectArgs) -> Result<()> {
    if args.trust {
        trust();
    }
    let args = &InspectArgs { file: hub::local(&args.file)?, ..args.clone() };
    let InspectArgs { file, module, image_size, tokenizer, .. } = args;
    let said = Said { file, module: *module, image_size: *image_size, tokenizer: tokenizer.as_deref() };
    if let Some(taken) = networks::taken(&said)? {
        let base = networks::print_module(file, &taken)?;
        if args.parameters {
            print_parameters(&base);
        }
        return Ok(());
    }
    if is_language(&args.file) || is_sighted(&args.file) || is_encoder(&args.file) {
        return print_language(args);
    }
    let InspectArgs { heads, activation, eps, .. } = *args;
    let fixed = Fixed { architecture: args.architecture.clone(), heads, activation, eps };
    let opened = OpenedCheckpoint::open(&args.file, fixed)?;
    println!("file          {}", args.file.display());
    print_network(&args.file, &opened.identified);
    print_text(opened.text());
    print_trainable(&opened.identified, args.rank)?;
    if args.parameters {
        print_parameters(&opened.identified.base);
    }
    Ok(())
}

/// Prints what the folder says of its images, and what of it bella does not do.
fn print_network(file: &Path, identified: &Identified) {
    let Identified { vit, naming, base, head, evidence, sources, stored, .. } = identified;
    let geometry = &vit.geometry;
    println!("naming        {}", naming.key);
    println!("image         {0} x {0} px, patch {1}, {2} tokens", geometry.image_size(), geometry.patch, vit.tokens());
    print!("{}", Preprocessing::of(file).report());
    println!("transformer   width {}, {} blocks, MLP {}", geometry.width, geometry.blocks, geometry.mlp);
    let (heads, traits) = (vit.traits.heads, vit.traits);
    println!("heads         {heads} of width {} ({})", geometry.width / heads, sources.heads);
    println!("activation    {} ({})", traits.activation, sources.activation);
    println!("layer norm    eps {:e} ({})", traits.eps, sources.eps);
    println!("positions     {} ({})", positions(vit, base), sources.rope);
    println!("readout       {} ({})", vit.parts.readout, sources.readout);
    println!("features      {}", geometry.output);
    networks::print_own_head(file, head.as_ref());
    println!("parameters    {} in the image tower, stored as {}", base.count(), precision_name(*stored));
    print_evidence(evidence);
    print_parts(vit);
}

/// Prints a network of texts, of which the options of a vision transformer say nothing.
fn print_language(args: &InspectArgs) -> Result<()> {
    let InspectArgs { architecture, heads, activation, eps, .. } = args;
    ensure!(
        architecture.is_none() && heads.is_none() && activation.is_none() && eps.is_none(),
        Usage(format!(
            "{}: config.json says everything of a network of texts: leave --architecture, --heads, --activation and --eps out",
            args.file.display()
        ))
    );
    let base = match &args.file {
        file if is_sighted(file) => networks::print_seeing(file, args.rank)?,
        file if is_encoder(file) => networks::print_encoder(file, args.rank)?,
        file => networks::print(file, args.rank)?,
    };
    if args.parameters {
        print_parameters(&base);
    }
    Ok(())
}

/// Names the ways in which tokens get their places.
fn positions(vit: &Vit, base: &Parameters) -> String {
    let rope = match vit.parts.rope {
        Some(Rope::Centred { theta }) => Some(format!("rotary, centred, base {theta}")),
        Some(Rope::Indexed { theta, reference }) => {
            Some(format!("rotary, indexed, base {theta}, scaled to {reference}"))
        }
        None => None,
    };
    let learnt = base.get("position").map(|_| "learnt".to_string());
    let relative = vit.parts.relative.then(|| "relative".to_string());
    learnt.into_iter().chain(relative).chain(rope).collect::<Vec<String>>().join(" + ")
}

fn print_parameters(base: &Parameters) {
    for (name, tensor) in base.all() {
        println!("  {name:32} {:?}", tensor.size());
    }
}

/// Prints the parts in which the network differs from a plain vision transformer.
fn print_parts(vit: &Vit) {
    let Parts { prefix, block, .. } = vit.parts;
    let all = [
        (block.layer_scale, "layer scale"),
        (block.gated, "gated MLP"),
        (block.keyless_bias, "keys without bias"),
        (block.attention_norm, "norm after attention"),
        (block.mlp_norm, "norm in the MLP"),
    ];
    let mut parts: Vec<String> = all.iter().filter(|(there, _)| *there).map(|(_, what)| what.to_string()).collect();
    if prefix != 1 {
        parts.push(format!("{prefix} tokens in front of the patches"));
    }
    println!("parts         {}", if parts.is_empty() { "those of a plain one".to_string() } else { parts.join(", ") });
}

/// Prints the text tower, or the reason why there is none to use.
fn print_text(text: Result<Option<IdentifiedText>>) {
    let text = match text {
        Ok(Some(text)) => text,
        Ok(None) => return println!("text tower    none"),
        Err(error) => return println!("text tower    not usable: {error:#}"),
    };
    let (geometry, traits) = (&text.tower.geometry, text.tower.traits);
    println!(
        "text tower    width {}, {} blocks, MLP {}, {} heads, {}, eps {:e}; {} parameters",
        geometry.width,
        geometry.blocks,
        geometry.mlp,
        traits.heads,
        traits.activation,
        traits.eps,
        text.weights.parameters.count()
    );
    println!(
        "texts         {} tokens of a vocabulary of {}; logit scale {:.4}",
        geometry.context, geometry.vocabulary, text.weights.logit_scale
    );
    print_evidence(&text.evidence);
}

/// Prints the number of trainable parameters in the paper's setting: both MLP layers of every block, for several
/// numbers of particles.
fn print_trainable(identified: &Identified, rank: i64) -> Result<()> {
    let tree = Tree::parse("inspect", &format!("[subspace.low-rank]\nrank = {rank}"))?;
    let root = Reader::root(&tree);
    let subspace = root.section("subspace");
    let reader = subspace.section(low_rank::ENTRY.key);
    let spec = (low_rank::ENTRY.read)(&reader);
    reader.finish();
    subspace.finish();
    let spec = root.close(spec)?;
    let weight = tch::Tensor::zeros([1, identified.vit.geometry.output], tch::kind::FLOAT_CPU);
    let bias = tch::Tensor::zeros([1], tch::kind::FLOAT_CPU);
    let head = Head { normalised: true, ..Head::new(weight, bias, Training::Never) };
    let parameters = spec.build(&identified.vit, &identified.base, &head)?.layout().parameters();
    let counts: Vec<String> = [1, 3, 5, 20, 100].iter().map(|n| format!("n = {n}: {}", n * parameters)).collect();
    println!("low rank {rank:<4} both MLP layers of every block, {}", counts.join(", "));
    Ok(())
}

fn print_evidence(evidence: &Evidence) {
    match evidence {
        Evidence::SelfCheck { difference, runner_up, half, normalised } => {
            println!(
                "self-check    relative difference {:.1e}, cosine {:.7}{}{}",
                difference.relative,
                difference.cosine,
                if *half { " (half-precision archive: bound 1e-2)" } else { " (bound 1e-5)" },
                if *normalised { ", on L2-normalised features as the archive returns them" } else { "" }
            );
            if let Some((traits, difference)) = runner_up {
                println!(
                    "runner-up     {} heads, {}, eps {:e}: {:.1e}",
                    traits.heads, traits.activation, traits.eps, difference.relative
                );
            }
        }
        Evidence::Config { reference } => {
            println!("check         {}", networks::CHECKED);
            match reference {
                Some(difference) => {
                    println!(
                        "reference     features agree with it: relative difference {:.1e} (bound 1e-5)",
                        difference.relative
                    )
                }
                None => println!(
                    "reference     none, so features are not compared: scripts/write_reference.py writes reference.safetensors"
                ),
            }
        }
        Evidence::Code { reason } => {
            println!("self-check    not possible: the archive's own forward does not run here ({reason})");
            println!("              heads, activation and eps are read from its code");
        }
    }
}
