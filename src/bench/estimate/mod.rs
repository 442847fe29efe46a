//! The cost of a whole experiment from its config alone: operations over a rate, images over the rate of decoding, the memory
//! of a step by the plan that training itself makes, and bytes on disk. Nothing is trained.
//!
//! [`crate::rehearse`] measures the same experiment instead, and is closer; both take their numbers of images and steps from
//! [`Real`].

mod case;
mod lengths;
mod network;

use anyhow::{Context, Result, bail};
use tch::Kind;

use crate::bench::case::{Choices, Source};
use crate::data::{Medium, SplitName};
use crate::experiment::Experiment;
use crate::machine::memory::{ChunkSize, Within};
use crate::methods::Origin;
use crate::rehearse::sizes::{Real, is_there, official};
use case::Case;
use lengths::Lengths;
use network::Sized;

pub use lengths::{Machine, Part, SHARE};

/// The expected cost of an experiment.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The name of the shape, or the checkpoint's file where it is there.
    pub network: String,
    pub kind: Kind,
    pub medium: Medium,
    /// A text that says how long prompts are and how that is known; `None` for images.
    pub lengths: Option<String>,
    pub parameters: i64,
    pub particles: i64,
    pub members: i64,
    pub real: Real,
    /// A word that says how the numbers of images are known.
    pub counted: &'static str,
    /// The images of the test split; `None` if no number is published.
    pub test: Option<usize>,
    pub training: Part,
    /// The predictions of held-out images after each epoch.
    pub validation: Part,
    /// The predictions of the test split.
    pub evaluation: Option<Part>,
    /// One FGSM budget on the test split: the gradient of the pixels, and the prediction of what it moves. Texts have none.
    pub attack: Option<Part>,
    /// The particles and images that go through the network at once, and the bytes of that with weights and state.
    pub cut: ChunkSize,
    pub memory_bytes: u64,
    /// The bytes of the checkpoint, the posterior, the resume file and the predictions.
    pub disk_bytes: u64,
}

impl Expected {
    /// Computes the cost of an experiment on a machine.
    ///
    /// # Errors
    /// Fails if the config trains nothing, if its data set publishes no numbers of images and is not there, or if the shape of
    /// its checkpoint is not known.
    pub fn new(experiment: &Experiment, machine: &Machine) -> Result<Expected> {
        let training = experiment.training.as_ref().context("the config has nothing to train: nothing to estimate")?;
        if training.method.spec.origin() == Origin::Checkpoint {
            bail!("method.{}: trains nothing; it takes one prediction of its images", training.method.key);
        }
        let network = Sized::of(experiment, machine.kind(training.train.precision))?;
        let lengths = Lengths::of(experiment, &network);
        let count =
            |split: SplitName| official(&*experiment.data.dataset, split).or_else(|| lengths.as_ref()?.samples(split));
        let real = Real::counted(experiment, &count).with_context(|| {
            let key = &experiment.data.key;
            format!("data.{key}: publishes no number of images: say how many by data.{key}.subset")
        })?;
        let test = count(SplitName::Test);
        let case = Case::new(experiment, network, real, lengths)?;
        Ok(Expected::of(&case, test, machine))
    }

    fn of(case: &Case, test: Option<usize>, machine: &Machine) -> Expected {
        let Within { cut, bytes: memory_bytes } = case.memory(machine);
        let (members, real) = (case.members(), case.real);
        let medium = case.experiment.data.dataset.medium();
        let evaluation = test.map(|images| case.evaluation(images));
        // The gradient of the pixels takes a forward pass and about as much again on the way back. All budgets share the decoded
        // images, which are those of the evaluation.
        let is_attacked = medium == Medium::Images && case.experiment.task.has_classes() && !case.is_linearised();
        let attack = evaluation.filter(|_| is_attacked);
        let predictions = test.unwrap_or(0) as u64 * case.saved_bytes();
        Expected {
            network: case.name.clone(),
            kind: case.model.kind,
            medium,
            lengths: case.lengths.as_ref().map(|lengths| lengths.told().to_string()),
            parameters: case.parameters(),
            particles: case.particles(),
            members,
            real,
            counted: if is_there(&*case.experiment.data.dataset) { "counted" } else { "published or configured" },
            test,
            training: case.training(),
            validation: case.validation(),
            evaluation,
            attack: attack.map(|part| Part { flop: 3.0 * part.flop, decoded: 0.0 }),
            cut,
            memory_bytes,
            disk_bytes: case.stored_bytes() + predictions,
        }
    }
}

/// The expected cost of a training step and of a prediction, for a network of a published shape.
#[derive(Clone, Debug)]
pub struct Single {
    pub kind: Kind,
    /// A text that says how long prompts are taken to be; `None` for images.
    pub lengths: Option<String>,
    pub parameters: i64,
    pub particles: i64,
    /// The bytes of the frozen weights.
    pub weights_bytes: u64,
    pub cut: ChunkSize,
    pub memory_bytes: u64,
    /// One step on a batch.
    pub step: Part,
    /// The prediction of one image or prompt by all particles; of a network that writes answers, with its answer.
    pub prediction: Part,
}

impl Single {
    /// Computes the cost of a case of `bella bench` on a machine.
    ///
    /// # Errors
    /// Fails if the settings do not fit the shape.
    pub fn new(source: &Source, choices: &Choices, machine: &Machine) -> Result<Single> {
        let experiment = choices.experiment(source)?;
        let training = experiment.training.as_ref().context("the case trains nothing")?;
        let network = Sized::of_source(source, &experiment, machine.kind(training.train.precision))?;
        let lengths = Lengths::assumed(&network);
        let images = choices.batch_size as usize;
        let real = Real { train: images, validation: 0, steps: 1, epochs: 1 };
        let case = Case::new(&experiment, network, real, lengths)?;
        let Within { cut, bytes: memory_bytes } = case.memory(machine);
        Ok(Single {
            kind: case.model.kind,
            lengths: case.lengths.as_ref().map(|lengths| lengths.told().to_string()),
            parameters: case.parameters(),
            particles: case.particles(),
            weights_bytes: case.weights_bytes(),
            cut,
            memory_bytes,
            step: Part { flop: case.step(), decoded: 0.0 },
            prediction: Part { decoded: 0.0, ..case.evaluation(1) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Tree;

    const TEXT: &str = "name = \"x\"\nseed = 1\n[checkpoint]\npath = \"nowhere/clip-mini.pt\"\nnormalize = \"clip\"\n\
        [head.zero-shot]\nweights = \"h\"\n[data.cifar10]\nroot = \"d\"\nvalidation = 0.2\n\
        [subspace.low-rank]\nrank = 4\ntargets = [\"mlp.fc\"]\nblocks = \"0\"\n[method.svgd]\nparticles = 3\ngamma = 0.01\n\
        [optimizer.adamw]\nlr = 1e-3\n[train]\nepochs = 2\nbatch_size = 100\n";

    const MACHINE: Machine = Machine { rate: 1e12, image_rate: 100.0, memory: 8 << 30, auto: Kind::BFloat16 };

    fn expected(text: &str) -> Expected {
        let experiment = Experiment::read(&Tree::parse("x.toml", text).unwrap()).unwrap();
        Expected::new(&experiment, &MACHINE).unwrap()
    }

    #[test]
    fn the_cost_is_that_of_its_parts() {
        let found = expected(TEXT);
        assert_eq!((found.real.steps, found.real.validation), (800, 10_000));
        assert_eq!((found.particles, found.members, found.test), (3, 3, Some(10_000)));
        assert_eq!(found.training.decoded, 0.0, "CIFAR's images are stored as pixels");
        let evaluation = found.evaluation.unwrap();
        // Validation predicts as many images in each of two epochs.
        assert!((found.validation.flop / evaluation.flop - 2.0).abs() < 1e-9);
        assert!((evaluation.seconds(&MACHINE) - evaluation.flop / (SHARE * 1e12)).abs() < 1e-12);
        assert!(found.disk_bytes > 2_808_576 * 4 && found.memory_bytes > 2_808_576 * 4);
        assert_eq!(found.cut, ChunkSize { members: 3, images: 100 });
    }

    #[test]
    fn more_gradients_more_particles_and_more_epochs_cost_more() {
        let one = expected(TEXT).training.flop;
        let sharp = expected(&TEXT.replace("particles = 3\n", "particles = 3\nsharpness = 0.05\n")).training.flop;
        assert!((sharp / one - 2.0).abs() < 1e-9);
        let epochs = expected(&TEXT.replace("epochs = 2", "epochs = 4")).training.flop;
        assert!((epochs / one - 2.0).abs() < 1e-9);
        let hessian = expected(&TEXT.replace("adamw", "adahessian")).training.flop;
        assert!((hessian / one - 3.0).abs() < 1e-9);
    }

    /// Returns the estimate with another method, whose optimizer has no settings.
    fn by(method: &str, optimizer: &str) -> Expected {
        let text = TEXT.replace("[method.svgd]\nparticles = 3\ngamma = 0.01\n", method);
        expected(&text.replace("[optimizer.adamw]\nlr = 1e-3\n", optimizer))
    }

    /// A chain leaves the states that it keeps in 800 steps, and each of them predicts.
    #[test]
    fn kept_states_predict() {
        let chain = |start: usize, samples: usize| {
            let keys =
                format!("particles = 2\nlr = 1e-3\ness = 40000\nstart = {start}\nevery = 10\nsamples = {samples}\n");
            by(&format!("[method.sgld]\n{keys}"), "[optimizer.none]\n")
        };
        assert_eq!([chain(0, 20).members, chain(700, 20).members, chain(600, 5).members], [2 * 20, 2 * 10, 2 * 5]);
        let mclmc = "[method.mclmc]\ness = 40000\nstart = 700\nevery = 25\n";
        assert_eq!(by(mclmc, "[optimizer.none]\n").members, 4);
        let ensemble = |particles: usize| {
            by(&format!("[method.ensemble]\nparticles = {particles}\n"), "[optimizer.adamw]\nlr = 1e-3\n")
        };
        let (many, two) = (ensemble(40), ensemble(2));
        let late = chain(400, 20);
        assert_eq!(late.evaluation, many.evaluation);
        // In the first of two epochs no state is kept: the chains themselves predict.
        let flop = 0.5 * (two.validation.flop + many.validation.flop);
        assert!((late.validation.flop / flop - 1.0).abs() < 1e-9, "{} {flop}", late.validation.flop);
        assert!(late.disk_bytes > chain(700, 20).disk_bytes);
    }

    /// Each draw of Gaussian logits is a member, but the network is passed once around each particle, with a gradient of each logit.
    #[test]
    fn draws_of_gaussian_logits_are_members() {
        let laplace =
            |keys: &str| by(&format!("[method.laplace]\nparticles = 2\n{keys}"), "[optimizer.adamw]\nlr = 1e-3\n");
        let members = |keys: &str| laplace(keys).members;
        assert_eq!(members("samples = 7\n"), 14);
        assert_eq!(members("predictive = \"tangent\"\nsamples = 7\n"), 14);
        assert_eq!(members("predictive = \"sampled\"\nsamples = 7\n"), 14);
        assert_eq!(members("predictive = \"probit\"\n"), 2);
        let flop = |found: &Expected| found.evaluation.unwrap().flop;
        let (one, sampled) = (laplace(""), laplace("predictive = \"sampled\"\nsamples = 1\n"));
        let times = flop(&one) / flop(&sampled);
        assert!((2.0..11.0).contains(&times), "a forward pass, and ten gradients of the first block's layer: {times}");
        assert_eq!(flop(&one), flop(&laplace("samples = 7\n")));
        assert!(one.attack.is_none() && sampled.attack.is_some());
        assert!(one.disk_bytes > laplace("samples = 7\n").disk_bytes);
    }

    #[test]
    fn a_text_encoder_is_counted_from_its_config() {
        let place = tempfile::tempdir().unwrap();
        let config = "{ \"model_type\": \"bert\", \"vocab_size\": 50, \"hidden_size\": 16, \"intermediate_size\": 24, \
                      \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"max_position_embeddings\": 12 }";
        std::fs::write(place.path().join("config.json"), config).unwrap();
        let path = toml::Value::from(place.path().to_string_lossy().into_owned());
        let found = expected(&format!(
            "name = \"x\"\nseed = 1\n[checkpoint]\npath = {path}\nkind = \"encoder\"\nmax_tokens = 10\n[head.linear]\n\
             [data.jsonl]\nroot = \"nowhere\"\nprompt = \"{{text}}\"\nlabels = [\"no\", \"yes\"]\nvalidation = 0.25\nsubset = 12\n\
             [subspace.low-rank]\nrank = 2\ntargets = [\"attn.q\", \"attn.v\"]\n[method.svgd]\nparticles = 3\ngamma = 0.01\n\
             [optimizer.adamw]\nlr = 1e-3\n[train]\nepochs = 1\nbatch_size = 3\n"
        ));
        assert_eq!((found.real.train, found.real.steps, found.test), (12, 3, Some(12)));
        assert!(found.lengths.unwrap().starts_with("10 tokens each: assumed"));
        // Rank 2 takes 2·(16 + 16) parameters of queries and as many of values in two blocks; the head is trained, too.
        assert_eq!(found.parameters, 2 * 2 * 64 + 2 * 16 + 2);
        assert!(found.attack.is_none() && found.evaluation.unwrap().flop > 12.0 * 3.0 * 2.0 * 28_000.0 / 3.0);
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let error = |text: &str| {
            let experiment = Experiment::read(&Tree::parse("x.toml", text).unwrap()).unwrap();
            Expected::new(&experiment, &MACHINE).err().unwrap().to_string()
        };
        assert!(error(&TEXT.replace("clip-mini", "my-own")).contains("that of no published shape"));
        let untrained = &TEXT[..TEXT.find("[subspace").unwrap()];
        assert!(error(untrained).contains("nothing to train"));
    }
}
