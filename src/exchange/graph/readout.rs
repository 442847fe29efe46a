//! The end of a forward pass: the tokens of the last block become features, logits and what follows from them.

use tch::Kind;

use super::pass::Pass;
use super::values::{IMAGES, Operation, Value};
use crate::model::vit::parts::Readout;

impl Pass<'_> {
    /// Returns the features `[p, B, 1, d]` of the last block's output.
    pub(super) fn read_out(&mut self, x: &Value) -> Value {
        let post = "ln_post";
        let x = match self.vit.parts.readout {
            Readout::Class => {
                let x = self.graph().slice(x, 2, (0, 1));
                self.norm(post, &x)
            }
            Readout::ClassDistillation => {
                let x = self.graph().slice(x, 2, (0, 2));
                let x = self.norm(post, &x);
                let (lead, width) = (x.shape[0], x.shape[3]);
                self.graph().reshape(&x, &[lead, IMAGES, 1, 2 * width])
            }
            Readout::Mean => {
                let x = self.mean_of_patches(x);
                self.norm(post, &x)
            }
            Readout::NormedMean => {
                let x = self.norm(post, x);
                self.mean_of_patches(&x)
            }
            Readout::ClassMean => {
                let x = self.norm(post, x);
                let (class, mean) = (self.graph().slice(&x, 2, (0, 1)), self.mean_of_patches(&x));
                self.graph().concat(&[&class, &mean], 3)
            }
            Readout::Map => self.pool(x),
        };
        if self.has("proj.weight") { self.layers.linear("proj", &x) } else { x }
    }

    fn mean_of_patches(&mut self, x: &Value) -> Value {
        let prefix = self.vit.parts.prefix;
        let patches = self.graph().slice(x, 2, (prefix, x.shape[2]));
        self.graph().mean(&patches, 2)
    }

    /// Returns the attention of a learnt query over all normalised tokens, `[p, B, 1, d]`.
    fn pool(&mut self, x: &Value) -> Value {
        let heads = self.vit.traits.heads;
        let x = self.norm("ln_post", x);
        let query = self.layers.param("pool.query", 2);
        let query = self.layers.linear("pool.q", &query);
        let both = self.layers.linear("pool.kv", &x);
        self.graph().enter("pool");
        let lead = query.shape[0].max(both.shape[0]);
        let query = self.graph().expand(&query, lead);
        let both = self.graph().expand(&both, lead);
        let [query] = self.split(&query, heads);
        let [key, value] = self.split(&both, heads);
        let read = self.graph().attention([&query, &key, &value], None);
        let read = self.merge(&read, lead);
        let x = self.layers.linear("pool.proj", &read);
        let y = self.norm("pool.ln", &x);
        let hidden = self.layers.linear("pool.fc", &y);
        let hidden = self.activated(&hidden);
        let y = self.layers.linear("pool.out", &hidden);
        self.graph().plus(&x, &y)
    }

    /// Returns the logits, the mean probabilities and the mutual information H[mean p] − mean H[p] in nats, all in f32.
    pub(super) fn predict(&mut self, features: &Value) -> [Value; 3] {
        self.graph().enter("head");
        let kind = std::mem::replace(&mut self.layers.kind, Kind::Float);
        let mut x = self.cast(features, kind, Kind::Float);
        let members = self.layers.members;
        if members.normalised {
            x = self.graph().keep(Operation::Unit, &[&x]);
        }
        let x = self.layers.linear("head", &x);
        let graph = self.graph();
        let classes = x.shape[3];
        let logits = graph.reshape(&x, &[x.shape[0], IMAGES, classes]);
        let logits = graph.expand(&logits, members.count);
        graph.enter("predictive");
        let each = graph.keep(Operation::Softmax, &[&logits]);
        let mean = self.averaged(&each);
        let graph = self.graph();
        let probabilities = graph.reshape(&mean, &[IMAGES, classes]);
        let total = graph.entropy(&mean);
        let own = graph.entropy(&each);
        let expected = self.averaged(&own);
        let graph = self.graph();
        let information = graph.pair(Operation::Subtract, &total, &expected);
        let information = graph.keep(Operation::Clamp { most: None }, &[&information]);
        let information = graph.reshape(&information, &[IMAGES]);
        [logits, probabilities, information]
    }

    /// Returns the mean over members `[n, B, k]`, by their weights.
    fn averaged(&mut self, x: &Value) -> Value {
        let weighted = match &self.layers.members.weights {
            Some(weights) => {
                let weights = self.layers.stored("predictive.weights", || weights.view([-1, 1, 1]));
                self.graph().times(x, &weights)
            }
            None => x.clone(),
        };
        self.graph().mean(&weighted, 0)
    }
}
