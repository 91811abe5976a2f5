# BEVY_SANITIZE is a comma-separated list for -fsanitize=, set by the asan and tsan presets.
set(BEVY_SANITIZE "" CACHE STRING "Sanitizers to build with, for example address,undefined")
if(BEVY_SANITIZE)
    add_compile_options(-O1 -fsanitize=${BEVY_SANITIZE} -fno-omit-frame-pointer
                        -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${BEVY_SANITIZE})
    # In instrumented code, GCC sees uses of uninitialised memory where there are none.
    add_compile_options(-Wno-maybe-uninitialized)
    # Tests that try many random cases try fewer of them.
    add_compile_definitions(BEVY_SANITIZED)
endif()
