//! `bella merge`: formed updates equal the low-rank ones, their variances those of draws, squared gradients the curvature's
//! diagonal; and the command end to end on the embedded digits.

use std::path::Path;

use crate::common;
use crate::common::{Place, assert_has, cells, done, error_line, fixture, model, number, with};
use bella::analysis::merge::{Contribution, Settings, merge, squared_gradients};
use bella::data::batches::{Batch, SampleSet, Samples, in_order};
use bella::data::fields::{Fields, PIXELS};
use bella::data::small::Sizes;
use bella::data::{Inputs, Packed, Split};
use bella::laplace::fit::Fit;
use bella::laplace::pass::{Maps, Pass};
use bella::laplace::{Curvature, Labels, Shape, Structure, Tokens};
use bella::model::Model;
use bella::results::store::read;
use bella::subspace::updates::Dense;
use bella::subspace::{Space, Subspace};
use indicatif::ProgressBar;
use tch::{Device, Kind, Tensor};

/// A config, with what it says of the checkpoint and of the head.
fn text(checkpoint: &Path, more: &str, subspace: &str) -> String {
    format!(
        "name = \"x\"\nseed = 1\n[checkpoint]\npath = {checkpoint:?}\n{more}\n[data.digits]\n{subspace}\n[method.map]\n\
         [optimizer.adamw]\nlr = 1e-3\n[train]\nepochs = 1\nbatch_size = 4\n"
    )
}

fn fixtures(subspace: &str) -> (Model, Box<dyn Subspace>) {
    model(&text(&fixture("timm_scripted.pt"), "normalize = \"clip\"\n[head.linear]", subspace), Kind::Float)
}

/// One particle away from its start, `[1, P]`.
fn particle(subspace: &dyn Subspace) -> Tensor {
    tch::manual_seed(1);
    let start = subspace.initial(1, 0).unwrap().unsqueeze(0);
    &start + start.randn_like() * 0.05
}

fn logits(model: &Model, subspace: &dyn Subspace, theta: &Tensor, images: &Fields) -> Tensor {
    let leaves = subspace.layout().leaves(theta, Kind::Float, false);
    model.logits(&subspace.weights(&model.base, &leaves), images)
}

/// Networks, each with the side of its images: the low-rank, full and projected ones of them.
fn every_kind() -> Vec<(i64, String)> {
    let vit = |subspace: &str| text(&fixture("timm_scripted.pt"), "normalize = \"clip\"\n[head.linear]", subspace);
    let module = "kind = \"module\"\nimage_size = 8\nnormalize = \"imagenet\"\n[head.linear]";
    let words = "normalize = \"clip\"\n[head.zero-shot]\ntemplates = [\"a {}.\"]\nclass_names = [\"cat\", \"dog\", \"ship\", \"zebra\", \
                 \"frog\", \"truck\", \"maple\", \"7\", \"foot\", \"a\"]";
    vec![
        (32, vit("[subspace.low-rank]\nrank = 2\ntargets = [\"attn.qkv\", \"mlp.fc\"]")),
        (32, vit("[subspace.full]")),
        (
            12,
            text(
                &fixture("module").join("residual.pt"),
                module,
                "[subspace.low-rank]\nrank = 2\ntargets = [\"linear\", \"pointwise\"]",
            ),
        ),
        (8, text(&fixture("module").join("residual.pt"), module, "[subspace.full]")),
        (16, text(&fixture("openai_clip_words.pt"), words, "[subspace.projections]")),
    ]
}

#[test]
fn merged_in_weights_a_model_with_itself_is_that_model() {
    for (side, config) in every_kind() {
        let (model, subspace) = model(&config, Kind::Float);
        let theta = particle(&*subspace);
        let images = Fields::of(PIXELS, Tensor::rand([1, 3, 3, side, side], (Kind::Float, Device::Cpu)));
        let own = logits(&model, &*subspace, &theta, &images);
        let run = || Contribution::new(&*subspace, &theta, None, Space::Weights).unwrap();
        let merged = merge(vec![run(), run()], &Settings { share: 0.5, prior: 0.0 }).unwrap();
        let formed = logits(&model, &*merged.subspace, &merged.theta, &images);
        let difference = (&own - formed).abs().max().double_value(&[]) / own.abs().max().double_value(&[]);
        assert!(difference < 1e-5, "{difference}: {config}");
        let start = logits(&model, &*subspace, &subspace.initial(1, 0).unwrap().unsqueeze(0), &images);
        assert!((own - start).abs().max().double_value(&[]) > 1e-3, "the particle is its start: {config}");
    }
}

#[test]
fn variances_are_those_of_draws() {
    const DRAWS: i64 = 2000;
    let (_, subspace) = fixtures("[subspace.low-rank]\nrank = 2\nblocks = \"0\"");
    let (theta, dense) = (particle(&*subspace), Dense::of(&*subspace).unwrap());
    let std = (theta.rand_like() + 0.5) * 0.1;
    let drawn = &theta + &std * Tensor::randn([DRAWS, theta.size()[1]], (Kind::Float, Device::Cpu));
    let found = dense.updates(&drawn).var_dim([0i64].as_slice(), true, false).to_kind(Kind::Double);
    let expected = dense.variances(&theta, &std.square()).get(0).to_kind(Kind::Double);
    let ratio = found / expected;
    let mean = ratio.mean(Kind::Double).double_value(&[]);
    assert!((mean - 1.0).abs() < 0.01, "{mean}");
    assert!((ratio - 1.0).abs().max().double_value(&[]) < 0.3, "a variance of 2,000 draws is right to 3 %");
}

#[test]
fn squared_gradients_are_the_diagonal_of_the_curvature() {
    const IMAGES: u32 = 4;
    let (model, subspace) = fixtures("[subspace.low-rank]\nrank = 1\nblocks = \"1\"");
    let theta = particle(&*subspace);
    let pixels = (Tensor::arange(i64::from(IMAGES) * 3 * 32 * 32, (Kind::Int64, Device::Cpu)) * 7919).remainder(256);
    let pixels = Vec::<u8>::try_from(pixels.to_kind(Kind::Uint8)).unwrap();
    let split =
        Split::new("x/train", Inputs::Packed(Packed { pixels, height: 32, width: 32 }), vec![0; IMAGES as usize]);
    let set = SampleSet::new(split, Device::Cpu, 1).unwrap();
    let indices: Vec<u32> = (0..IMAGES).collect();

    let maps = Maps::all(&*subspace).unwrap();
    let shape = Shape { structure: Structure::Diag, tokens: Tokens::Expand, wide: 512, kept: 10 };
    let mut fit = Fit::new(&maps, shape, Labels::All, Device::Cpu);
    for batch in set.batches(in_order(&indices, 4)) {
        let Batch { samples, .. } = batch.unwrap();
        let images = model.preparation.prepare(&samples.for_all());
        fit.add(&Pass::new(&model, &*subspace, &maps, &theta, &images).unwrap()).unwrap();
    }
    let Curvature::Diag(expected) = fit.finish().unwrap() else { panic!("diagonal") };

    let images = Samples { set: &set, indices: &indices };
    let draw = |seed| squared_gradients(&model, &*subspace, &theta, images, &ProgressBar::hidden(), seed).unwrap();
    let draws: Vec<Tensor> = (0..300).map(draw).collect();
    let mean = Tensor::stack(&draws, 0).mean_dim([0i64].as_slice(), false, Kind::Double);
    let total = |t: &Tensor| t.sum(Kind::Double).double_value(&[]);
    assert!((total(&mean) / total(&expected) - 1.0).abs() < 0.05, "{} {}", total(&mean), total(&expected));
    let cosine = total(&(&mean * &expected)) / (total(&mean.square()) * total(&expected.square())).sqrt();
    assert!(cosine > 0.99, "{cosine}");
}

const IVON: [&str; 2] = ["method.ivon={lr=0.1,ess=32,hess_init=0.1,beta2=0.99,samples=2}", "optimizer.none={}"];

/// Two IVON runs and a plain one.
fn three() -> (Place, [String; 3]) {
    let place = Place::new();
    let plain = common::tiny().replace("[method.svgd]\nparticles = 2\ngamma = 0.01\n", "[method.map]\n");
    let ivon = common::tiny()
        .replace("[method.svgd]\nparticles = 2\ngamma = 0.01\n", "")
        .replace("[optimizer.adamw]\nlr = 2e-3\n", "");
    place.write("tiny.toml", ivon.as_bytes());
    done(place.train(&IVON));
    done(place.train(&[&IVON[..], &["seed=4"]].concat()));
    place.write("tiny.toml", plain.as_bytes());
    done(place.train(&[]));
    let mut runs: Vec<String> = std::fs::read_dir(place.path("results/runs/tiny"))
        .unwrap()
        .map(|entry| entry.unwrap().path().display().to_string())
        .collect();
    runs.sort();
    (place, runs.try_into().unwrap())
}

#[test]
fn runs_are_merged_and_evaluated() {
    let (place, [first, second, plain]) = three();
    let merge = |runs: [&str; 2], options: &[&str]| with(with(place.command("merge", &[]), &runs), options);
    assert_has(&error_line(merge([&first, &first], &[]), 2), &["low-rank-ivon-s3", "comes twice; leave one out"]);
    done(merge([&first, &second], &[]));
    done(merge([&first, &second], &["--by", "mean"]));
    done(merge([&first, &plain], &["--by", "squared-gradients", "--images", "16"]));
    let results = read(&place.path("results/tiny.csv")).unwrap();
    let predictives = cells(&results, "predictive");
    let row = |start: &str| predictives.iter().position(|p| p.starts_with(start)).unwrap_or_else(|| panic!("{start}"));
    let loss = |start: &str| number(&results, row(start), "nll_pm");
    let id = |run: &str| run.rsplit('/').next().unwrap().to_string();
    let merged = loss(&format!("merge-posterior with {}", id(&second)));
    let plain_mean = loss("merge-mean");
    assert!(merged.is_finite() && (merged - plain_mean).abs() > 1e-6, "certainty changes nothing: {merged}");
    assert!(loss("merge-squared-gradients prior 1 images 16").is_finite());
    // What a merged model costs is the training of all its runs.
    let ids = cells(&results, "run");
    let own = |run: &str| (0..ids.len()).find(|&at| ids[at] == id(run) && predictives[at].is_empty()).unwrap();
    for column in ["train_wall_seconds", "train_processor_seconds", "trainable_parameters"] {
        let of = |row: usize| number(&results, row, column);
        let sum = of(own(&first)) + of(own(&second));
        assert!((of(row("merge-mean")) / sum - 1.0).abs() < 1e-6, "{column}: {} for {sum}", of(row("merge-mean")));
    }

    assert_has(
        &error_line(merge([&plain, &first], &["--by", "posterior"]), 2),
        &["low-rank-map", "without variances", "squared-gradients"],
    );
    // A posterior without variances is merged by the mean.
    let output = merge([&plain, &first], &[]).output().unwrap();
    assert_has(&common::messages(&output), &["merged by mean: --by chooses another way"]);
    assert_eq!(output.status.code(), Some(0));
    assert_has(&error_line(merge([&first, &second], &["--space", "factors"]), 2), &["same A", "leave --space out"]);
    assert_has(&error_line(merge([&first, &second], &["--share", "0"]), 2), &["--share", "above 0"]);
    assert_has(&error_line(merge([&first, &second], &["--by", "squared-gradients", "--prior", "0"]), 2), &["--prior"]);
}

/// Runs of the tiny experiment with these settings, in their order.
fn trained(place: &Place, all: &[&[&str]]) -> Vec<String> {
    let names = || place.runs().iter().map(|run| run.display().to_string()).collect::<Vec<_>>();
    let mut runs = Vec::new();
    for sets in all {
        done(place.train(sets));
        runs.extend(names().into_iter().filter(|run| !runs.contains(run)).collect::<Vec<_>>());
    }
    runs
}

#[test]
fn what_has_other_meanings_in_two_runs_is_not_merged() {
    let place = Place::with_tiny();
    place.write(
        "tiny.toml",
        common::tiny().replace("[method.svgd]\nparticles = 2\ngamma = 0.01\n", "[method.map]\n").as_bytes(),
    );
    let sizes = Sizes { classes: 2, present: 2, train: 16, val: 0, test: 6, side: 16, corruptions: 0 };
    for folder in ["images", "others"] {
        common::small_set(&place, folder, "image-folder", &sizes);
    }
    for split in ["train", "test"] {
        let folders = std::fs::read_dir(place.path("others").join(split)).unwrap().map(|entry| entry.unwrap().path());
        let last = folders.max().unwrap();
        std::fs::rename(&last, last.with_file_name("zebra")).unwrap();
    }
    let folder = |name: &str| {
        let root = format!("data.image-folder.root={}", place.path(name).display());
        ["data={}".to_string(), root, "head={linear={}}".to_string()]
    };
    let (images, others) = (folder("images"), folder("others"));
    let [images, others] = [&images, &others].map(|sets| sets.each_ref().map(String::as_str));
    let runs = trained(
        &place,
        &[
            &[],
            &["subspace.low-rank.alpha=64"],
            &["method={ensemble={particles=2}}"],
            &["subspace.low-rank.init=eva"],
            &images,
            &others,
        ],
    );
    let refused = |first: usize, second: usize, more: &[&str]| {
        // What an option asks for can be asked for otherwise; other classes stay what they are.
        let code = if more.is_empty() { 1 } else { 2 };
        error_line(with(with(place.command("merge", &[]), &[&runs[first], &runs[second]]), more), code)
    };
    let factors = ["--space", "factors"];
    assert_has(&refused(0, 1, &factors), &["alpha", "leave --space out"]);
    assert_has(&refused(0, 2, &factors), &["same A", "leave --space out"]);
    assert_has(&refused(0, 3, &factors), &["init = \"eva\"", "leave --space out"]);
    assert_has(&refused(4, 5, &[]), &["class 1 is `zebra`, and `", "same classes"]);
}
