//! The module tree and the TorchScript code of CLIP's towers under OpenAI's names (Radford et al. 2021, arXiv
//! 2103.00020): `visual.conv1.weight`, `visual.transformer.resblocks.0.mlp.c_fc.weight`, …; the text tower is at the
//! root.
//!
//! The image tower also serves other pre-norm vision transformers: without `ln_pre` and the projection it is timm's.

use tch::Kind;

use crate::model::archive::write::{Blueprint, Class, Module, number};
use crate::model::vit::text::TextGeometry;
use crate::model::vit::{Geometry, Traits};

/// An image tower, and optionally a text tower.
pub struct Clip {
    pub image: Geometry,
    pub traits: Traits,
    /// The layers around the blocks of the image tower. CLIP has a layer norm and a projection there, and timm has
    /// neither.
    pub around: Around,
    /// The geometry and the number of heads of the text tower; its activation and eps are those of the image tower.
    pub text: Option<(TextGeometry, i64)>,
    /// The type of the matrices. Layer norms and embeddings are f32, as OpenAI publishes them.
    pub kind: Kind,
}

/// The layers before and after the blocks of an image tower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// A layer norm before the blocks, and after them a projection to the width of the features.
    NormAndProjection,
    Nothing,
}

/// The transformer in one of the two towers.
struct Tower {
    /// The prefix of the names of its classes: `Image` or `Text`.
    prefix: &'static str,
    width: i64,
    mlp: i64,
    blocks: usize,
    traits: Traits,
    causal: bool,
    kind: Kind,
}

impl Clip {
    /// Returns the module tree with its code. It has the method `encode_image` and, with a text tower, `encode_text`
    /// and a `forward` of both; without one, `forward` is the same as `encode_image`.
    pub fn blueprint(&self) -> Blueprint {
        let image = Tower {
            prefix: "Image",
            width: self.image.width,
            mlp: self.image.mlp,
            blocks: self.image.blocks,
            traits: self.traits,
            causal: false,
            kind: self.kind,
        };
        let mut code = linear_class();
        code += &image.classes();
        code += &self.image_class();
        let mut root = Module::new("Clip").module("visual", self.visual(&image));
        if let Some((text, heads)) = &self.text {
            let traits = Traits { heads: *heads, ..self.traits };
            let tower = Tower {
                prefix: "Text",
                width: text.width,
                mlp: text.mlp,
                blocks: text.blocks,
                traits,
                causal: true,
                kind: self.kind,
            };
            code += &tower.classes();
            code += &embedding_class();
            root = with_text(root, text, &tower, self.kind);
        }
        code += &self.root_class();
        Blueprint { root, code }
    }

    fn visual(&self, tower: &Tower) -> Module {
        let Geometry { width, patch, grid, output, .. } = self.image;
        let mut visual = Module::new("ImageTower").parameter("class_embedding", &[width], Kind::Float).parameter(
            "positional_embedding",
            &[1 + grid * grid, width],
            Kind::Float,
        );
        if self.around == Around::NormAndProjection {
            visual = visual.parameter("proj", &[width, output], self.kind);
        }
        visual = visual
            .module("conv1", Module::new("Patches").parameter("weight", &[width, 3, patch, patch], self.kind))
            .module("transformer", tower.transformer())
            .module("ln_post", tower.norm());
        if self.around == Around::NormAndProjection { visual.module("ln_pre", tower.norm()) } else { visual }
    }

    /// Returns the classes `Patches` and `ImageTower`.
    fn image_class(&self) -> String {
        let (patch, kind) = (self.image.patch, number(self.kind));
        let projected = self.around == Around::NormAndProjection;
        let patches = Class::new("Patches").parameters(&["weight"]).method(
            "forward",
            "x: Tensor",
            "Tensor",
            &[format!("return torch.conv2d(x, self.weight, None, [{patch}, {patch}])")],
        );
        let mut class = Class::new("ImageTower");
        let mut parameters = vec!["class_embedding", "positional_embedding"];
        parameters.extend(projected.then_some("proj"));
        class = class.parameters(&parameters).module("conv1", "Patches");
        class = class.module("transformer", "ImageTransformer").module("ln_post", "ImageNorm");
        let mut body = vec![
            format!("patches = (self.conv1).forward(torch.to(images, {kind}), )"),
            "rows = torch.transpose(torch.flatten(patches, 2), 1, 2)".to_string(),
            format!("first = torch.expand(torch.to(self.class_embedding, {kind}), [torch.size(rows, 0), 1, -1])"),
            format!("x = torch.add(torch.cat([first, rows], 1), torch.to(self.positional_embedding, {kind}))"),
        ];
        if projected {
            class = class.module("ln_pre", "ImageNorm");
            body.push("x = (self.ln_pre).forward(x, )".to_string());
        }
        body.push("x = (self.transformer).forward(x, )".to_string());
        body.push("features = (self.ln_post).forward(torch.select(x, 1, 0), )".to_string());
        let result = if projected { "torch.matmul(features, self.proj)" } else { "features" };
        body.push(format!("return {result}"));
        patches.code() + &class.method("forward", "images: Tensor", "Tensor", &body).code()
    }

    /// Returns the root class `Clip`.
    fn root_class(&self) -> String {
        let mut class = Class::new("Clip").module("visual", "ImageTower");
        let image = ["return (self.visual).forward(images, )".to_string()];
        if self.text.is_none() {
            let class = class.method("forward", "images: Tensor", "Tensor", &image);
            return class.method("encode_image", "images: Tensor", "Tensor", &image).code();
        }
        class = class.parameters(&["positional_embedding", "text_projection", "logit_scale"]);
        class = class.module("transformer", "TextTransformer");
        class = class.module("token_embedding", "Embedding").module("ln_final", "TextNorm");
        let text = [
            "words = torch.add((self.token_embedding).forward(tokens, ), self.positional_embedding)".to_string(),
            format!("x = (self.transformer).forward(torch.to(words, {}), )", number(self.kind)),
            "normed = (self.ln_final).forward(x, )".to_string(),
            "places = torch.arange(torch.size(tokens, 0))".to_string(),
            "ends = annotate(List[Optional[Tensor]], [places, torch.argmax(tokens, -1)])".to_string(),
            "return torch.matmul(torch.index(normed, ends), self.text_projection)".to_string(),
        ];
        let normalised = |of: &str| format!("{of} = torch.div({of}, torch.linalg_vector_norm({of}, 2., [-1], True))");
        let both = [
            "features = (self).encode_image(images, )".to_string(),
            "words = (self).encode_text(tokens, )".to_string(),
            normalised("features"),
            normalised("words"),
            "logits = torch.matmul(torch.mul(torch.exp(self.logit_scale), features), torch.t(words))".to_string(),
            "return (logits, torch.t(logits))".to_string(),
        ];
        class
            .method("forward", "images: Tensor, tokens: Tensor", "Tuple[Tensor, Tensor]", &both)
            .method("encode_image", "images: Tensor", "Tensor", &image)
            .method("encode_text", "tokens: Tensor", "Tensor", &text)
            .code()
    }
}

fn with_text(root: Module, text: &TextGeometry, tower: &Tower, kind: Kind) -> Module {
    let TextGeometry { width, vocabulary, context, output, .. } = *text;
    root.parameter("positional_embedding", &[context, width], Kind::Float)
        .parameter("text_projection", &[width, output], kind)
        .parameter("logit_scale", &[], Kind::Float)
        .module("transformer", tower.transformer())
        .module("token_embedding", Module::new("Embedding").parameter("weight", &[vocabulary, width], Kind::Float))
        .module("ln_final", tower.norm())
}

impl Tower {
    fn class(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn norm(&self) -> Module {
        let shape = [self.width];
        Module::new(self.class("Norm")).parameter("weight", &shape, Kind::Float).parameter("bias", &shape, Kind::Float)
    }

    fn linear(&self, outputs: i64, inputs: i64) -> Module {
        let module = Module::new("Linear").parameter("weight", &[outputs, inputs], self.kind);
        module.parameter("bias", &[outputs], self.kind)
    }

    fn transformer(&self) -> Module {
        let (width, mlp) = (self.width, self.mlp);
        let mut blocks = Module::new(self.class("Blocks"));
        for block in 0..self.blocks {
            let attention = Module::new(self.class("Attention"))
                .parameter("in_proj_weight", &[3 * width, width], self.kind)
                .parameter("in_proj_bias", &[3 * width], self.kind)
                .module("out_proj", self.linear(width, width));
            let inner = Module::new(self.class("Mlp"))
                .module("c_fc", self.linear(mlp, width))
                .module("c_proj", self.linear(width, mlp));
            let module = Module::new(self.class("Block"))
                .module("attn", attention)
                .module("ln_1", self.norm())
                .module("mlp", inner)
                .module("ln_2", self.norm());
            blocks = blocks.module(&block.to_string(), module);
        }
        Module::new(self.class("Transformer")).module("resblocks", blocks)
    }

    /// Returns the classes `Norm`, `Attention`, `Mlp`, `Block`, `Blocks` and `Transformer` of this tower.
    fn classes(&self) -> String {
        let norm = Class::new(&self.class("Norm")).parameters(&["weight", "bias"]).method(
            "forward",
            "x: Tensor",
            "Tensor",
            &[
                format!(
                    "y = torch.layer_norm(torch.to(x, 6), [{}], self.weight, self.bias, {:e})",
                    self.width, self.traits.eps
                ),
                format!("return torch.to(y, {})", number(self.kind)),
            ],
        );
        let mlp = Class::new(&self.class("Mlp")).module("c_fc", "Linear").module("c_proj", "Linear").method(
            "forward",
            "x: Tensor",
            "Tensor",
            &[
                "h = (self.c_fc).forward(x, )".to_string(),
                format!("h = {}", self.traits.activation.script("h")),
                "return (self.c_proj).forward(h, )".to_string(),
            ],
        );
        let block = Class::new(&self.class("Block"))
            .module("attn", &self.class("Attention"))
            .module("ln_1", &self.class("Norm"))
            .module("mlp", &self.class("Mlp"))
            .module("ln_2", &self.class("Norm"))
            .method(
                "forward",
                "x: Tensor",
                "Tensor",
                &[
                    "x = torch.add(x, (self.attn).forward((self.ln_1).forward(x, ), ))".to_string(),
                    "return torch.add(x, (self.mlp).forward((self.ln_2).forward(x, ), ))".to_string(),
                ],
            );
        [norm, self.attention(), mlp, block, self.blocks(), self.stack()].iter().map(Class::code).collect()
    }

    fn attention(&self) -> Class {
        let (width, heads) = (self.width, self.traits.heads);
        let head = width / heads;
        let causal = if self.causal { "True" } else { "False" };
        let body = [
            "qkv = torch.linear(x, self.in_proj_weight, self.in_proj_bias)".to_string(),
            format!("parts = torch.view(qkv, [torch.size(x, 0), torch.size(x, 1), 3, {heads}, {head}])"),
            "parts = torch.permute(parts, [2, 0, 3, 1, 4])".to_string(),
            "q = torch.select(parts, 0, 0)".to_string(),
            "k = torch.select(parts, 0, 1)".to_string(),
            "v = torch.select(parts, 0, 2)".to_string(),
            format!("y = torch.scaled_dot_product_attention(q, k, v, None, 0., {causal})"),
            format!("y = torch.reshape(torch.transpose(y, 1, 2), [torch.size(x, 0), torch.size(x, 1), {width}])"),
            "return (self.out_proj).forward(y, )".to_string(),
        ];
        Class::new(&self.class("Attention"))
            .parameters(&["in_proj_weight", "in_proj_bias"])
            .module("out_proj", "Linear")
            .method("forward", "x: Tensor", "Tensor", &body)
    }

    fn blocks(&self) -> Class {
        let block = self.class("Block");
        (0..self.blocks).fold(Class::new(&self.class("Blocks")), |class, i| class.numbered(i, &block))
    }

    fn stack(&self) -> Class {
        let mut body = vec!["blocks = self.resblocks".to_string()];
        body.extend((0..self.blocks).map(|i| format!("x = (getattr(blocks, \"{i}\")).forward(x, )")));
        body.push("return x".to_string());
        Class::new(&self.class("Transformer")).module("resblocks", &self.class("Blocks")).method(
            "forward",
            "x: Tensor",
            "Tensor",
            &body,
        )
    }
}

fn linear_class() -> String {
    let body = ["return torch.linear(x, self.weight, self.bias)".to_string()];
    Class::new("Linear").parameters(&["weight", "bias"]).method("forward", "x: Tensor", "Tensor", &body).code()
}

fn embedding_class() -> String {
    let body = ["return torch.embedding(self.weight, tokens)".to_string()];
    Class::new("Embedding").parameters(&["weight"]).method("forward", "tokens: Tensor", "Tensor", &body).code()
}

#[cfg(test)]
mod tests;
