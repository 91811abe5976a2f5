add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                    -Wno-missing-field-initializers -Wnon-virtual-dtor -Woverloaded-virtual)
option(BEVY_WERROR "Treat warnings as errors" ON)
if(BEVY_WERROR)
    add_compile_options(-Werror)
endif()
