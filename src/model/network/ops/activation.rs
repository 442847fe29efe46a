//! The activations of networks.

use tch::Tensor;

use crate::schema::words;

words! {
    /// The activation behind a layer, such as the first one of an MLP.
    pub enum Activation { Gelu = "gelu", QuickGelu = "quick-gelu", GeluTanh = "gelu-tanh", Silu = "silu", Tanh = "tanh" }
}

impl Activation {
    /// Applies the activation elementwise.
    pub fn apply(self, x: &Tensor) -> Tensor {
        match self {
            Activation::Gelu => x.gelu("none"),
            Activation::GeluTanh => x.gelu("tanh"),
            Activation::QuickGelu => x * (x * 1.702).sigmoid(),
            Activation::Silu => x.silu(),
            Activation::Tanh => x.tanh(),
        }
    }

    /// Returns the activation of an expression as a TorchScript expression.
    pub fn script(self, x: &str) -> String {
        match self {
            Activation::Gelu => format!("torch.gelu({x})"),
            Activation::GeluTanh => format!("torch.gelu({x}, approximate=\"tanh\")"),
            Activation::QuickGelu => format!("torch.mul({x}, torch.sigmoid(torch.mul({x}, 1.702)))"),
            Activation::Silu => format!("torch.silu({x})"),
            Activation::Tanh => format!("torch.tanh({x})"),
        }
    }
}
