//! The graph of a job as a picture: `picture` says what it shows, `layers` and `places` where boxes
//! stand, and `svg` and `dot` write it.

mod dot;
#[cfg(test)]
mod example;
mod layers;
mod picture;
mod places;
mod svg;

pub(crate) use dot::dot;
pub(crate) use picture::GraphPicture;
pub(crate) use svg::svg;
