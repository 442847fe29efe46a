//! Texts that the members of a posterior write together. At every token the probabilities of all members are averaged, since
//! a posterior predicts one distribution and not as many texts as it has members; the most probable token is written.

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor, no_grad};

use crate::base::tensor::{host_f64, upload};
use crate::data::fields::{Fields, IDS};
use crate::machine::memory;
use crate::model::network::{Autoregressive, Graph, Memory, Weights};
use crate::predict::{Predictor, in_parts};

/// A token that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    pub id: u32,
    /// Its probability, averaged over the members.
    pub probability: f64,
    /// The entropy `H[p̄]` of the averaged distribution, in nats.
    pub entropy: f64,
    /// The mutual information `H[p̄] − mean_k H[p_k]`, in nats.
    pub mutual_information: f64,
    /// The most probable tokens with their averaged probabilities, the most probable first.
    pub top: Vec<(u32, f64)>,
}

/// The number of most probable tokens that are kept.
const TOP: i64 = 5;

/// The end of a text.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// The most tokens that are written.
    pub tokens: usize,
    /// The token at which a text ends; it is not part of what is returned.
    pub end: Option<u32>,
}

/// Members that go through the network together, with what they keep of the texts.
struct Part<'a> {
    weights: std::rc::Rc<Weights<'a>>,
    memory: Memory,
}

impl Predictor<'_> {
    /// Continues prompts `[B, …]`, and returns what was written after each of them.
    ///
    /// # Errors
    /// Fails if the network writes no texts, if a text would be longer than its context, if the members have no weights, or
    /// if memory does not suffice.
    pub fn generate(&self, prompts: &Fields, stop: Stop) -> Result<Vec<Vec<Written>>> {
        let network = self.model.network.autoregressive().context("this network writes no texts")?;
        let (batch, longest) = (prompts.length(0) as usize, prompts.get(IDS).size()[1]);
        let tokens = longest + stop.tokens as i64;
        ensure!(
            tokens <= network.context(),
            "a prompt of {longest} tokens and {} more exceed the network's context of {} tokens: generate fewer",
            stop.tokens,
            network.context()
        );
        let kept = network.kept_bytes(tokens, self.model.kind) * (batch * self.members()) as u64;
        let chunker = self.plan_pass("generation", Graph::None, batch, kept)?;
        no_grad(|| {
            let prompts = self.model.preparation.prepare(&prompts.on(self.model.device).for_all());
            let mut features = Vec::new();
            let mut parts = Vec::new();
            for members in in_parts(0..self.members(), chunker.cut().members) {
                let weights = self.weights(members)?;
                let (found, memory) = network.read(&weights, &prompts, stop.tokens as i64);
                features.push(found);
                parts.push(Part { weights, memory });
            }
            self.write(network, (parts, features), batch, stop)
        })
    }

    /// Returns how many texts of at most `most` to continue at once by `tokens` tokens, so that what is kept of them takes at most
    /// half of the free memory.
    ///
    /// # Errors
    /// Fails if the network writes no texts.
    pub fn texts_at_once(&self, tokens: usize, most: usize) -> Result<usize> {
        let network = self.model.network.autoregressive().context("this network writes no texts")?;
        let longest = network.longest_prompt() + tokens as i64;
        let kept = network.kept_bytes(longest, self.model.kind) * self.members() as u64;
        let room = memory::room(self.model.device).map_or(u64::MAX, |room| room / 2);
        Ok((room / kept.max(1)).clamp(1, most.max(1) as u64) as usize)
    }

    fn write(
        &self,
        network: &dyn Autoregressive,
        (mut parts, mut features): (Vec<Part>, Vec<Tensor>),
        batch: usize,
        stop: Stop,
    ) -> Result<Vec<Vec<Written>>> {
        let mut texts = vec![Vec::new(); batch];
        let mut ended = vec![false; batch];
        for step in 0..stop.tokens {
            let logits = parts.iter().zip(&features).map(|(part, x)| network.token_logits(&part.weights, x));
            let next = self.next(&Tensor::cat(&logits.collect::<Vec<_>>(), 0))?;
            for ((text, ended), written) in texts.iter_mut().zip(&mut ended).zip(&next) {
                *ended = *ended || Some(written.id) == stop.end;
                if !*ended {
                    text.push(written.clone());
                }
            }
            if step + 1 == stop.tokens || ended.iter().all(|ended| *ended) {
                break;
            }
            let ids: Vec<i64> = next.iter().map(|written| i64::from(written.id)).collect();
            let ids = upload(&Tensor::from_slice(&ids), self.model.device).unsqueeze(0);
            for (part, features) in parts.iter_mut().zip(&mut features) {
                *features = network.append(&part.weights, &mut part.memory, &ids);
            }
        }
        Ok(texts)
    }

    /// Returns the most probable token of each text from the logits `[m, B, V]` of all members.
    fn next(&self, logits: &Tensor) -> Result<Vec<Written>> {
        let log_probabilities = logits.to_kind(Kind::Double).log_softmax(-1, Kind::Double);
        let probabilities = log_probabilities.exp();
        let members = logits.size()[0];
        let share = match self.averaging_weights() {
            Some(weights) => Tensor::from_slice(weights) / weights.iter().sum::<f64>(),
            None => Tensor::full([members], 1.0 / members as f64, (Kind::Double, tch::Device::Cpu)),
        };
        let share = share.to_device(logits.device()).view([-1, 1, 1]);
        let over_members = |x: Tensor| x.sum_dim_intlist([0i64].as_slice(), false, Kind::Double);
        let entropy = |p: &Tensor| -p.xlogy(p).sum_dim_intlist([-1i64].as_slice(), false, Kind::Double);
        let mean = over_members(&probabilities * &share);
        let expected = over_members(entropy(&probabilities).unsqueeze(2) * &share).squeeze_dim(1);
        let entropies = entropy(&mean);
        let (best, ids) = mean.topk(TOP.min(mean.size()[1]), -1, true, true);
        let mutual = (&entropies - expected).clamp_min(0.0);
        let (best, entropies, mutual) = (host_f64(&best.reshape([-1]))?, host_f64(&entropies)?, host_f64(&mutual)?);
        let kept = ids.size()[1] as usize;
        let ids = Vec::<i64>::try_from(ids.to_device(tch::Device::Cpu).reshape([-1]))?;
        let one = |i: usize| {
            let most = (i * kept..(i + 1) * kept).map(|at| (ids[at] as u32, best[at]));
            let top: Vec<(u32, f64)> = most.collect();
            let (id, probability) = top[0];
            Written { id, probability, entropy: entropies[i], mutual_information: mutual[i], top }
        };
        Ok((0..entropies.len()).map(one).collect())
    }
}
