//! Pictures that are files of their own.

use super::element::Element;
use super::frame::view;

/// The appearance of a class.
#[derive(Debug, Clone, PartialEq)]
pub struct Ink {
    /// The class.
    pub class: String,
    /// The colour on white and on black.
    pub colours: [&'static str; 2],
    /// The height of its text or the thickness of its lines; 0 if the element sets it, or it needs
    /// none.
    pub size: f64,
}

impl Ink {
    /// Creates the appearance of `class`.
    pub fn new(class: impl Into<String>, colours: [&'static str; 2], size: f64) -> Self {
        Self { class: class.into(), colours, size }
    }
}

const FONTS: &str = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', 'DejaVu Sans', \
                     sans-serif";

/// Returns the picture of `inside` on a ground of the class `ground`. Each element has its colour
/// on white as an attribute, since some programs read no style sheets. A style sheet has the dark
/// colours, for readers who prefer them.
pub fn standalone(
    (width, height): (f64, f64),
    ground: &str,
    inks: &[Ink],
    inside: Vec<Element>,
) -> String {
    let mut inside = inside;
    let whole = [("x", 0.0), ("y", 0.0), ("width", width), ("height", height.round())];
    inside.insert(0, Element::new("rect").set("class", ground).places(whole));
    inside.iter_mut().for_each(|element| paint(element, inks));
    let svg = Element::new("svg")
        .set("xmlns", "http://www.w3.org/2000/svg")
        .places([("width", width), ("height", height.round())])
        .set("viewBox", view(width, height.round()))
        .set("font-family", FONTS)
        .with([Element::new("style").words(dark(inks))])
        .with(inside);
    format!("{svg}\n")
}

fn dark(inks: &[Ink]) -> String {
    let rule = |Ink { class, colours: [_, dark], .. }: &Ink| {
        format!(
            "text.{class},rect.{class}{{fill:{dark}}}line.{class},polyline.{class}{{stroke:{dark}}}"
        )
    };
    format!("@media(prefers-color-scheme:dark){{{}}}", inks.iter().map(rule).collect::<String>())
}

fn paint(element: &mut Element, inks: &[Ink]) {
    element.inside.iter_mut().for_each(|inner| paint(inner, inks));
    let class = element.attrs.iter().find(|(name, _)| *name == "class");
    let Some(ink) = class.and_then(|(_, class)| inks.iter().find(|ink| ink.class == *class)) else {
        return;
    };
    let (names, more) = match element.tag {
        "text" => (["fill", "font-size"], None),
        "polyline" => (["stroke", "stroke-width"], Some(("fill", "none"))),
        "line" => (["stroke", "stroke-width"], None),
        _ => (["fill", ""], None),
    };
    element.attrs.push((names[0], ink.colours[0].to_owned()));
    if ink.size > 0.0 && !names[1].is_empty() {
        element.attrs.push((names[1], ink.size.to_string()));
    }
    element.attrs.extend(more.map(|(name, value)| (name, value.to_owned())));
}
