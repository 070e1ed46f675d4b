//! The one reconcile loop: observe, plan, apply
