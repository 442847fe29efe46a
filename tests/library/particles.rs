//! The particle-batched objective equals separate ones; the adapter path equals merged weights; B = 0 is the checkpoint.

use crate::common;
use crate::common::{fixture, model, relatively_near as near};
use bella::analysis::similarity::similarities;
use bella::base::random::{At, Purpose, normal, stream};
use bella::data::batches::Batch;
use bella::data::fields::{Fields, PIXELS};
use bella::experiment::Experiment;
use bella::methods::{Evaluation, Extra, FactorNoise, Objective, Output, Outputs, Request};
use bella::model::Model;
use bella::model::network::Weights;
use bella::posterior::{Masks, Place};
use bella::schema::Tree;
use bella::subspace::geometry::WeightSpace;
use bella::subspace::updates::mean;
use bella::subspace::{Shape, Space, Subspace};
use bella::tasks::{Loss, Recipe};
use bella::train::{Learner, Likelihood, Passes, rate_factors};
use tch::{Kind, Tensor};

const PARTICLES: i64 = 3;
const BATCH: i64 = 4;
const TARGETS: &str = r#"targets = ["attn.qkv", "attn.proj", "mlp.fc", "mlp.proj"]"#;

/// A model of the fixtures with a subspace of it.
struct Setting {
    model: Model,
    subspace: Box<dyn Subspace>,
}

impl Setting {
    fn new(archive: &str, head: &str, subspace: &str, kind: Kind) -> Setting {
        let text = format!(
            "name = \"x\"\nseed = 1\n[checkpoint]\npath = {:?}\nnormalize = \"clip\"\n{head}\n[data.digits]\n{subspace}\n\
             [method.ensemble]\nparticles = 3\n[optimizer.adamw]\nlr = 1e-3\n[train]\nepochs = 1\nbatch_size = 4\n",
            fixture(archive)
        );
        let (model, subspace) = model(&text, kind);
        Setting { model, subspace }
    }

    /// A CLIP tower with a frozen text head.
    fn clip(subspace: &str) -> Setting {
        Setting::of_kind(subspace, Kind::Float)
    }

    /// The same in another type of numbers.
    fn of_kind(subspace: &str, kind: Kind) -> Setting {
        let head = format!("[head.zero-shot]\nweights = {:?}", fixture("heads/head_tiny.safetensors"));
        Setting::new("openai_visual.pt", &head, subspace, kind)
    }

    /// A timm ViT with its own classifier.
    fn timm(subspace: &str) -> Setting {
        Setting::new("timm_scripted.pt", "[head.checkpoint]", subspace, Kind::Float)
    }

    /// Starts of all particles, `[n, P]`, as training makes them.
    fn start(&self) -> Tensor {
        let rows: Vec<Tensor> = (0..PARTICLES as u64).map(|i| self.subspace.initial(1, i).unwrap()).collect();
        Tensor::stack(&rows, 0)
    }

    /// Particles that have moved apart in every column.
    fn apart(&self) -> Tensor {
        let start = self.start();
        let mut rng = stream(5, Purpose::Noise, &[]);
        let noise: Vec<f32> = (0..start.numel()).map(|_| 0.05 * normal(&mut rng) as f32).collect();
        &start + Tensor::from_slice(&noise).view_as(&start)
    }

    /// A batch of bytes at another size than the network's, in `orders` orders.
    fn batch(&self, orders: i64) -> Batch {
        use rand::RngExt;
        let mut rng = stream(6, Purpose::Check, &[]);
        let bytes: Vec<u8> = (0..orders * BATCH * 3 * 20 * 20).map(|_| rng.random()).collect();
        let labels: Vec<i64> = (0..orders * BATCH).map(|_| rng.random_range(0..10)).collect();
        Batch {
            samples: Fields::of(PIXELS, Tensor::from_slice(&bytes).view([orders * BATCH, 3, 20, 20])),
            labels: Tensor::from_slice(&labels),
        }
    }

    fn evaluate(&self, theta: &Tensor, cut: Passes, batch: &Batch, orders: i64) -> Evaluation {
        Likelihood::new(Learner::of_classes(&self.model, self.subspace.as_ref()), cut, batch, orders)
            .losses(theta)
            .unwrap()
    }

    /// One objective a particle, each on its own rows of the batch.
    fn separate(&self, theta: &Tensor, batch: &Batch, orders: i64) -> Vec<Evaluation> {
        let whole = Passes::WHOLE;
        let own = |particle: i64| {
            let from = if orders == 1 { 0 } else { particle * BATCH };
            let part =
                Batch { samples: batch.samples.narrow(0, from, BATCH), labels: batch.labels.narrow(0, from, BATCH) };
            self.evaluate(&theta.narrow(0, particle, 1), whole, &part, 1)
        };
        (0..PARTICLES).map(own).collect()
    }

    fn check_batched_equals_separate(&self) {
        let theta = self.apart();
        for orders in [1, PARTICLES] {
            let batch = self.batch(orders);
            let separate = self.separate(&theta, &batch, orders);
            for particle_chunk in [0, 1, 2] {
                for (accumulate, recompute) in [(1, false), (3, false), (1, true), (3, true)] {
                    let cut = Passes { particle_chunk, accumulate, recompute };
                    let batched = self.evaluate(&theta, cut, &batch, orders);
                    for (i, alone) in separate.iter().enumerate() {
                        let what = format!("orders {orders}, {cut:?}, particle {i}");
                        near(&batched.losses.get(i as i64), &alone.losses.get(0), 1e-5, &what);
                        near(&batched.gradients.get(i as i64), &alone.gradients.get(0), 1e-5, &what);
                    }
                }
            }
        }
    }

    /// Logits do not depend on how they are cut, and pulling back the gradient of the cross-entropy gives its gradient.
    fn check_pull_back(&self) {
        let theta = self.apart();
        for orders in [1, PARTICLES] {
            let batch = self.batch(orders);
            let expected = self.evaluate(&theta, Passes::WHOLE, &batch, orders);
            let mut seen: Option<Tensor> = None;
            for particle_chunk in [0, 1, 2] {
                for (accumulate, recompute) in [(1, false), (3, false), (1, true)] {
                    let cut = Passes { particle_chunk, accumulate, recompute };
                    let mut objective =
                        Likelihood::new(Learner::of_classes(&self.model, self.subspace.as_ref()), cut, &batch, orders);
                    let Outputs { values: logits, labels } = objective.outputs(&theta, Output::Logits).unwrap();
                    assert!(!logits.requires_grad());
                    let what = format!("orders {orders}, {cut:?}");
                    near(&logits, seen.get_or_insert_with(|| logits.copy()), 1e-5, &what);
                    let hot = labels.one_hot(logits.size()[2]);
                    let by_logits = (logits.softmax(-1, Kind::Float) - hot) / BATCH as f64;
                    let pulled = objective.pull_back(&theta, Output::Logits, &by_logits).unwrap();
                    near(&pulled, &expected.gradients, 1e-5, &what);
                }
            }
        }
    }

    /// Logits `[p, B, C]` of particles on images `[1, B, 3, S, S]`.
    fn logits(&self, theta: &Tensor, images: &Fields) -> Tensor {
        let leaves = self.subspace.layout().leaves(theta, Kind::Float, false);
        self.model.logits(&self.subspace.weights(&self.model.base, &leaves), images)
    }

    fn images(&self) -> Fields {
        self.model.preparation.prepare(&self.batch(1).samples.for_all())
    }

    /// Logits of the checkpoint as it is.
    fn frozen(&self, images: &Fields) -> Tensor {
        self.model.logits(&Weights::frozen(&self.model.base), images)
    }

    /// The base with W_0 + scale · B_i A_i formed, one per particle.
    fn merged(&self, theta: &Tensor) -> Weights<'_> {
        let layout = self.subspace.layout();
        let leaves = layout.leaves(theta, Kind::Float, false);
        let mut weights = Weights::frozen(&self.model.base);
        for (block, factors) in layout.blocks.iter().zip(leaves.chunks_exact(2)) {
            let Shape::LowRank { scale, .. } = block.shape else { panic!("{block:?} is not low-rank") };
            let name = format!("{}.weight", block.name);
            let update = factors[1].bmm(&factors[0]) * scale;
            weights.replace(&name, self.model.base.get(&name).unwrap() + update);
        }
        weights
    }
}

fn low_rank() -> String {
    format!("[subspace.low-rank]\nrank = 2\n{TARGETS}")
}

#[test]
fn batched_equals_separate_for_clip_low_rank() {
    Setting::clip(&low_rank()).check_batched_equals_separate();
}

#[test]
fn batched_equals_separate_for_clip_full() {
    Setting::clip("[subspace.full]").check_batched_equals_separate();
}

#[test]
fn batched_equals_separate_for_timm_low_rank() {
    Setting::timm(&low_rank()).check_batched_equals_separate();
}

/// DoRA's lengths of rows and PiSSA's frozen rest are those of each particle alone; both start at the checkpoint.
#[test]
fn batched_equals_separate_for_dora_and_pissa() {
    for more in ["dora = true", "init = \"pissa\"", "init = \"pissa\"\ndora = true"] {
        let setting = Setting::timm(&format!("{}\n{more}", low_rank()));
        setting.check_batched_equals_separate();
        let images = setting.images();
        let logits = setting.logits(&setting.start(), &images);
        let frozen = setting.frozen(&images).expand_as(&logits);
        near(&logits, &frozen, 1e-5, more);
    }
}

#[test]
fn batched_equals_separate_for_timm_full() {
    Setting::timm("[subspace.full]").check_batched_equals_separate();
}

#[test]
fn pulled_back_gradients_are_exact_for_every_cut() {
    Setting::clip(&low_rank()).check_pull_back();
    Setting::timm("[subspace.full]").check_pull_back();
}

#[test]
fn batched_equals_separate_with_a_new_head() {
    Setting::new("openai_visual.pt", "[head.linear]", &low_rank(), Kind::Float).check_batched_equals_separate();
}

#[test]
fn gradients_match_finite_differences() {
    let setting = Setting::timm(&low_rank());
    let (theta, batch) = (setting.apart(), setting.batch(PARTICLES));
    let cut = Passes::WHOLE;
    let gradients = setting.evaluate(&theta, cut, &batch, PARTICLES).gradients;
    // Along the gradient itself the slope is its length; a step of 1e-2 in f32 gives it to about three digits.
    let length = gradients.square().sum_dim_intlist([1i64].as_slice(), true, Kind::Float).sqrt();
    let direction = &gradients / &length;
    let at = |step: f64| setting.evaluate(&(&theta + &direction * step), cut, &batch, PARTICLES).losses;
    let slope = (at(1e-2) - at(-1e-2)) / 2e-2;
    near(&slope, &length.squeeze_dim(1), 1e-2, "slope along the gradient");
}

#[test]
fn particles_start_as_the_checkpoint_exactly() {
    for setting in [Setting::clip(&low_rank()), Setting::timm(&low_rank())] {
        let images = setting.images();
        let frozen = setting.frozen(&images);
        let theta = setting.start();
        for particle in 0..PARTICLES {
            let alone = setting.logits(&theta.narrow(0, particle, 1), &images);
            assert_eq!(alone, frozen, "particle {particle}");
        }
        let together = setting.logits(&theta, &images);
        near(&together, &frozen.expand_as(&together), 1e-6, "all particles in one forward");
    }
}

#[test]
fn full_starts_as_the_checkpoint() {
    for setting in [Setting::clip("[subspace.full]"), Setting::timm("[subspace.full]")] {
        let images = setting.images();
        let logits = setting.logits(&setting.start(), &images);
        near(&logits, &setting.frozen(&images).expand_as(&logits), 1e-5, "full at the start");
    }
}

#[test]
fn adapter_path_equals_merged_weights() {
    for setting in [Setting::clip(&low_rank()), Setting::timm(&low_rank())] {
        let (images, theta) = (setting.images(), setting.apart());
        let merged = setting.model.logits(&setting.merged(&theta), &images);
        let adapted = setting.logits(&theta, &images);
        near(&adapted, &merged, 1e-5, "logits");
        let spread = (adapted.get(0) - adapted.get(1)).abs().max().double_value(&[]);
        assert!(spread > 1e-3, "the particles do not differ: {spread}");
    }
}

#[test]
fn layouts_count_the_parameters() {
    // Per block of width d and MLP m, rank r: r (d + 3d) + r (d + d) + r (d + m) + r (m + d).
    let timm = Setting::timm(&low_rank());
    assert_eq!(timm.subspace.layout().parameters(), 2 * 2 * (4 * 16 + 2 * 16 + 2 * (16 + 48)));
    let base: usize = timm.model.base.count();
    let full = Setting::timm("[subspace.full]");
    assert_eq!(
        full.subspace.layout().parameters() as usize,
        base + 10 * 16 + 10,
        "the checkpoint's own head is trained"
    );
    let clip = Setting::clip("[subspace.full]");
    assert_eq!(clip.subspace.layout().parameters() as usize, clip.model.base.count(), "the text head is frozen");
}

#[test]
fn combinations_equal_dense_ones() {
    let coefficients = Tensor::from_slice(&[0.5f32, 0.2, 0.3, -0.4, 0.4, 1.0]).view([2, 3]);
    for setting in [Setting::clip(&low_rank()), Setting::timm(&low_rank())] {
        let (images, theta) = (setting.images(), setting.apart());
        let combined = setting.subspace.combine(&theta, &coefficients).unwrap();
        let leaves = combined.subspace.layout().leaves(&combined.theta, Kind::Float, false);
        let ours = setting.model.logits(&combined.subspace.weights(&setting.model.base, &leaves), &images);
        let mut weights = Weights::frozen(&setting.model.base);
        let merged = setting.merged(&theta);
        for block in &setting.subspace.layout().blocks {
            let name = format!("{}.weight", block.name);
            let own = merged.own(&name).unwrap();
            let mixed = coefficients.matmul(&own.reshape([PARTICLES, -1])).reshape([2, own.size()[1], own.size()[2]]);
            weights.replace(&name, mixed);
        }
        near(&ours, &setting.model.logits(&weights, &images), 1e-5, "logits of two combinations that sum to 1");
    }
}

#[test]
fn the_soup_of_whole_models_is_their_mean() {
    let setting = Setting::timm("[subspace.full]");
    let theta = setting.apart();
    let soup = mean(&*setting.subspace, &theta, None, Space::Weights).unwrap();
    near(&soup.theta, &theta.mean_dim([0i64].as_slice(), true, Kind::Float), 1e-6, "mean of weights");
    let mut weights = vec![0.0; theta.size()[0] as usize];
    (weights[0], weights[1]) = (0.75, 0.25);
    let soup = mean(&*setting.subspace, &theta, Some(&weights), Space::Weights).unwrap();
    near(&soup.theta, &(theta.narrow(0, 0, 1) * 0.75 + theta.narrow(0, 1, 1) * 0.25), 1e-6, "weighted mean");
}

#[test]
fn the_soup_in_factors_is_another_model() {
    let setting = Setting::clip(&low_rank());
    let (theta, images) = (setting.apart(), setting.images());
    let logits = |space| {
        let soup = mean(&*setting.subspace, &theta, None, space).unwrap();
        let leaves = soup.subspace.layout().leaves(&soup.theta, Kind::Float, false);
        setting.model.logits(&soup.subspace.weights(&setting.model.base, &leaves), &images)
    };
    let (exact, factors) = (logits(Space::Weights), logits(Space::Factors));
    let difference = (exact - factors).abs().max().double_value(&[]);
    assert!(difference > 1e-3, "the mean of products is not the product of means: {difference}");
}

#[test]
fn similarities_equal_those_of_formed_updates() {
    let setting = Setting::timm(&low_rank());
    let theta = setting.apart();
    let found = similarities(&*setting.subspace, &theta).unwrap();
    let merged = setting.merged(&theta);
    let updates: Vec<Tensor> = setting
        .subspace
        .layout()
        .blocks
        .iter()
        .map(|block| {
            let name = format!("{}.weight", block.name);
            (merged.own(&name).unwrap() - setting.model.base.get(&name).unwrap()).reshape([PARTICLES, -1])
        })
        .collect();
    let all = Tensor::cat(&updates, 1).to_kind(Kind::Double);
    let unit = &all / all.norm_scalaropt_dim(2.0, [1i64].as_slice(), true);
    let cosines = unit.matmul(&unit.transpose(0, 1));
    assert_eq!((found[0].block.as_str(), found.len()), ("all", updates.len() + 1));
    for (pair, cosine) in found[0].cosines.iter().enumerate() {
        let (i, j) = (pair as i64 / PARTICLES, pair as i64 % PARTICLES);
        let expected = cosines.double_value(&[i, j]);
        assert!((cosine.unwrap() - expected).abs() < 1e-4, "{i}, {j}: {cosine:?} and {expected}");
        let distance = (all.get(i) - all.get(j)).norm().double_value(&[]);
        assert!((found[0].distances[pair] - distance).abs() < 1e-4 * (1.0 + distance));
    }
}

/// Where each part is one image, the signs of its noise can be read off: the gradient by the noise is that of the factor A
/// times them. With the noise so signed in theta, the plain gradients are the same. Signs differ from image to image.
#[test]
fn flipout_gives_each_image_signs_of_its_own() {
    let setting = Setting::clip(&low_rank());
    let theta = setting.apart();
    let mask = theta.zeros_like();
    for update in WeightSpace::new(setting.subspace.layout()).updates() {
        let _ = update.a(&mask).fill_(1.0);
    }
    let mut rng = stream(8, Purpose::Noise, &[]);
    let noise: Vec<f32> = (0..theta.numel()).map(|_| 0.05 * normal(&mut rng) as f32).collect();
    let noise = Tensor::from_slice(&noise).view_as(&theta) * &mask;
    let batch = setting.batch(1);
    let objective =
        |cut| Likelihood::new(Learner::of_classes(&setting.model, setting.subspace.as_ref()), cut, &batch, 1);
    let flipped = |cut: Passes, noise: &Tensor, part: usize| {
        let noise = FactorNoise { noise, seed: 3, step: 5 };
        let request = Request::losses(&theta).on_part(part).with(Extra::Noise(noise));
        objective(cut).evaluate(&request).unwrap().extended().unwrap()
    };
    let single = Passes { particle_chunk: 0, accumulate: BATCH as usize, recompute: false };
    let (mut sum, mut by_noise, mut seen) = (theta.zeros_like(), theta.zeros_like(), Vec::new());
    for image in 0..BATCH as usize {
        let found = flipped(single, &noise, image);
        let signs = found.extra.sign() * found.own.gradients.sign() * &mask;
        let plain = objective(single).losses_of_part(&(&theta + &noise * &signs), image).unwrap();
        near(&found.own.losses, &plain.losses, 1e-5, "losses");
        near(&found.own.gradients, &plain.gradients, 1e-4, "gradients");
        near(&found.extra, &(plain.gradients * &signs), 1e-4, "gradients by the noise");
        sum += found.own.gradients;
        by_noise += found.extra;
        seen.push(signs);
    }
    assert!(seen.windows(2).all(|pair| !pair[0].equal(&pair[1])), "signs differ from image to image");
    assert!(!seen[0].get(0).equal(&seen[0].get(1)), "signs differ from particle to particle");
    for particle_chunk in [0, 2] {
        for recompute in [false, true] {
            let cut = Passes { particle_chunk, accumulate: 1, recompute };
            let found = flipped(cut, &noise, 0);
            near(&found.own.gradients, &sum, 1e-4, "gradients of the batch");
            near(&found.extra, &by_noise, 1e-4, "by the noise of the batch");
        }
    }
    let still = flipped(Passes::WHOLE, &noise.zeros_like(), 0);
    near(&still.own.gradients, &setting.evaluate(&theta, Passes::WHOLE, &batch, 1).gradients, 1e-5, "without noise");
}

/// Each image by itself, each particle by itself.
#[test]
fn squared_gradients_are_those_of_single_images() {
    for setting in [Setting::clip(&low_rank()), Setting::timm("[subspace.full]")] {
        let theta = setting.apart();
        for orders in [1, PARTICLES] {
            let batch = setting.batch(orders);
            let cut = Passes { particle_chunk: 0, accumulate: 2, recompute: false };
            let whole = setting.evaluate(&theta, cut, &batch, orders);
            let mut likelihood =
                Likelihood::new(Learner::of_classes(&setting.model, setting.subspace.as_ref()), cut, &batch, orders);
            let mut squared = |part: usize| {
                let request = Request::losses(&theta).on_part(part).with(Extra::Squares);
                likelihood.evaluate(&request).unwrap().extended().unwrap()
            };
            let parts = [0, 1].map(&mut squared);
            near(&(&parts[0].own.losses + &parts[1].own.losses), &whole.losses, 1e-5, "losses");
            near(&(&parts[0].own.gradients + &parts[1].own.gradients), &whole.gradients, 1e-5, "gradients");
            for particle in 0..PARTICLES {
                let from = if orders == 1 { 0 } else { particle * BATCH };
                let mut squares = theta.get(particle).zeros_like();
                for image in from..from + BATCH {
                    let one =
                        Batch { samples: batch.samples.narrow(0, image, 1), labels: batch.labels.narrow(0, image, 1) };
                    let alone = setting.evaluate(&theta.narrow(0, particle, 1), Passes::WHOLE, &one, 1);
                    squares += alone.gradients.get(0).square() / BATCH as f64;
                }
                let found = parts[0].extra.get(particle) + parts[1].extra.get(particle);
                near(&found, &squares, 1e-5, &format!("squares of particle {particle}, orders {orders}"));
            }
        }
    }
}

/// Returns the factors of the learning rates that a table `[train]` with these keys gives the columns, by name.
fn factors(setting: &Setting, keys: &str) -> Result<Vec<(String, f64)>, String> {
    let text = format!("{}\n{keys}\n", common::tiny());
    let experiment = Experiment::read(&Tree::parse("tiny.toml", &text).unwrap()).unwrap();
    let (spec, layout) = (&experiment.training.as_ref().unwrap().train, setting.subspace.layout());
    let found = rate_factors(spec, &*setting.model.network, layout).map_err(|error| error.to_string())?;
    let Some(found) = found else { return Ok(Vec::new()) };
    let of = |column: &bella::subspace::Column| {
        let own = found.narrow(0, column.start, column.count());
        assert_eq!(own.min().double_value(&[]), own.max().double_value(&[]));
        (column.name.clone(), own.double_value(&[0]))
    };
    Ok(layout.columns.iter().map(of).collect())
}

// scripts/make_rate_goldens.py, timm 1.0.31 and peft 0.21.2
#[test]
fn rates_by_group_are_those_of_timm_and_peft() {
    let full = Setting::timm("[subspace.full]");
    assert_eq!(full.model.network.blocks(), 2);
    let expected = |name: &str| match name {
        _ if name.starts_with("blocks.0.") => 0.48999999999999994,
        _ if name.starts_with("blocks.1.") || name.starts_with("ln_post.") => 0.7,
        _ if name.starts_with("head.") => 3.0,
        _ => 0.3429999999999999,
    };
    let found = factors(&full, "layer_decay = 0.7\nhead_rate = 3.0").unwrap();
    for group in ["blocks.0.", "blocks.1.", "ln_post.", "head.", "patch", "pos"] {
        assert!(found.iter().any(|(name, _)| name.starts_with(group)), "{group}: {found:?}");
    }
    for (name, factor) in found {
        assert!((factor - expected(&name)).abs() < 1e-12, "{name}: {factor}");
    }
    let low = Setting::clip(&low_rank());
    for (name, factor) in factors(&low, "b_rate = 16.0").unwrap() {
        assert_eq!(factor, if name.ends_with(".B") { 16.0 } else { 1.0 }, "{name}");
    }
    assert_eq!(factors(&low, "").unwrap(), []);
    assert!(factors(&full, "b_rate = 16.0").unwrap_err().contains("train.b_rate = 16: no low-rank update is trained"));
    assert!(factors(&low, "head_rate = 2.0").unwrap_err().contains("no head is trained"));
}

/// With weights of the classes, the loss is the weighted mean of the whole batch, Σ w_y l / Σ w_y, for each particle's own images, however
/// the batch is cut.
#[test]
fn weighted_losses_do_not_depend_on_how_a_batch_is_cut() {
    let setting = Setting::clip(&low_rank());
    let weights: Vec<f64> = (0..10).map(|class| 0.2 + f64::from(class)).collect();
    let recipe = Recipe::new(Some(weights.clone()), 0.1);
    let learner = Learner { model: &setting.model, subspace: setting.subspace.as_ref(), loss: &recipe };
    let theta = setting.apart();
    for orders in [1, PARTICLES] {
        let batch = setting.batch(orders);
        let labels: Vec<i64> = Vec::try_from(&batch.labels).unwrap();
        let scales: Vec<f64> = labels
            .chunks_exact(BATCH as usize)
            .map(|own| recipe.scale(&mut own.iter().map(|label| *label as u32)).unwrap())
            .collect();
        let scales = Tensor::from_slice(&scales).to_kind(Kind::Float);
        let on = |cut| Likelihood::new(learner, cut, &batch, orders).scaled_by(&scales);
        let outputs = on(Passes::WHOLE).outputs(&theta, Output::Logits).unwrap();
        let sums = Tensor::from_slice(&weights).index_select(0, &outputs.labels.reshape([-1])).view_as(&outputs.labels);
        let sums = sums.sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
        let each = recipe.of_logits(&outputs.values.to_kind(Kind::Double), &outputs.labels);
        let expected = each.sum_dim_intlist([1i64].as_slice(), false, Kind::Double) / sums;
        let whole = on(Passes::WHOLE).losses(&theta).unwrap();
        near(&whole.losses, &expected.to_kind(Kind::Float), 1e-5, "the weighted mean");
        for (particle_chunk, accumulate, recompute) in [(2, 1, false), (1, 3, false), (0, 3, true)] {
            let cut = Passes { particle_chunk, accumulate, recompute };
            let what = format!("orders {orders}, {cut:?}");
            let found = on(cut).losses(&theta).unwrap();
            near(&found.losses, &whole.losses, 1e-5, &what);
            near(&found.gradients, &whole.gradients, 1e-5, &what);
        }
        let request = Request::losses(&theta).with(Extra::Squares);
        let squared = on(Passes::WHOLE).evaluate(&request).unwrap().extended().unwrap();
        near(&squared.own.gradients, &whole.gradients, 1e-5, "with squares");
    }
}

/// Gradients of half precision are those of f32 within its rounding, also of a loss so small that they vanish unless it is magnified; what
/// cannot be divided again is refused.
#[test]
fn magnified_losses_keep_small_gradients_in_half_precision() {
    let (single, half) = (Setting::clip(&low_rank()), Setting::of_kind(&low_rank(), Kind::Half));
    let theta = single.apart();
    let small = Tensor::from_slice(&[1e-6f32]);
    let on = |setting: &Setting, magnified: f64| {
        let learner = Learner::of_classes(&setting.model, setting.subspace.as_ref());
        let batch = setting.batch(1);
        let likelihood = Likelihood::new(learner, Passes::WHOLE, &batch, 1).scaled_by(&small).magnified_by(magnified);
        let mut likelihood = likelihood;
        likelihood.losses(&theta).unwrap().gradients
    };
    let expected = on(&single, 1.0);
    near(&on(&single, 65536.0), &expected, 1e-5, "f32 magnified");
    let difference = |found: &Tensor| (found - &expected).norm().double_value(&[]) / expected.norm().double_value(&[]);
    let (plain, magnified) = (difference(&on(&half, 1.0)), difference(&on(&half, 65536.0)));
    assert!(magnified < 0.02 && plain > 0.1, "{magnified} {plain}");
    let learner = Learner::of_classes(&half.model, half.subspace.as_ref());
    let batch = half.batch(1);
    let mut likelihood = Likelihood::new(learner, Passes::WHOLE, &batch, 1).magnified_by(1024.0);
    let refused = likelihood.evaluate(&Request::losses(&theta).with(Extra::Squares)).err().unwrap().to_string();
    assert!(refused.contains("f16") && refused.ends_with("use \"bf16\" or \"f32\""), "{refused}");
}

/// The layers whose inputs dropout acts on: the updates' in `low-rank`, the blocks' linear layers in `full`.
#[test]
fn dropout_knows_the_layers_and_equals_dropped_inputs() {
    let low = Setting::clip(&low_rank());
    let inputs = WeightSpace::new(low.subspace.layout()).inputs().to_vec();
    assert_eq!(inputs.len(), low.subspace.layout().blocks.len());
    let full = Setting::timm("[subspace.full]");
    let layout = full.subspace.layout();
    let masks = Masks { layers: WeightSpace::new(layout).inputs().to_vec(), rate: 0.5 };
    let blocks = full.model.network.stages();
    let dropped: Vec<&str> = layout.columns.iter().filter(|c| c.takes_inputs).map(|c| c.name.as_str()).collect();
    assert_eq!(dropped.iter().filter(|name| name.starts_with("blocks.")).count(), 4 * blocks, "{dropped:?}");
    assert!(dropped.iter().all(|name| name.starts_with("blocks.") || *name == "head.weight"), "{dropped:?}");
    // A factor is 0 or 2 in whole columns of these weights, and 1 elsewhere.
    let at = At { step: 0, sample: 0, part: 0 };
    let place = Place { seed: 1, purpose: Purpose::Posterior, at, particle: 0 };
    let factors = masks.factors(place, &full.apart());
    for column in &layout.columns {
        let own = factors.narrow(0, column.start, column.count());
        if !column.takes_inputs {
            assert!(own.eq(1.0).all().int64_value(&[]) == 1, "{}", column.name);
            continue;
        }
        let weight = own.view(column.shape.as_slice());
        assert!(weight.eq_tensor(&weight.get(0)).all().int64_value(&[]) == 1, "{}", column.name);
    }
}
