//! Stacking of survey images, the data diffusion paper's application.
