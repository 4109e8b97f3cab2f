#![no_main]
#![doc = "The fuzz target `hold`."]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzz::hold::check(data));
