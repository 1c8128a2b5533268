#include "network.h"

#include <stdlib.h>
#include <string.h>

/* Writes a number in decimal, and returns the end of the text. */
static char *write_decimal(char *at, unsigned number) {
    char digits[10];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (count > 0) *at++ = digits[--count];
    return at;
}

bool fail(plugin_error_t *error, const char *message, const char *file, int line) {
    /* The path from the plugin's directory. */
    const char *source = strstr(file, "src/");
    source = source ? source : file;
    char place[256];
    size_t length = strlen(source);
    if (length > sizeof place - 12) length = sizeof place - 12;
    memcpy(place, source, length);
    place[length] = ':';
    *write_decimal(place + length + 1, (unsigned)line) = 0;
    error->code = SAGGAR_PLUGIN_TENSORS_ERROR_CODE_INVALID_ARGUMENT;
    model_plugin_string_dup(&error->message, message);
    error->place.is_some = true;
    model_plugin_string_dup(&error->place.val, place);
    return false;
}

double json_number(const model_plugin_string_t *json, const char *name, double otherwise) {
    const char *text = (const char *)json->ptr;
    size_t length = strlen(name);
    for (size_t at = 0; at + length + 3 < json->len; at++) {
        if (text[at] != '"' || memcmp(text + at + 1, name, length) != 0 || text[at + length + 1] != '"') continue;
        /* The text does not end with a zero byte, so the number is copied. */
        char number[32] = {0};
        size_t begin = at + length + 2, used = 0;
        while (begin < json->len && (text[begin] == ':' || text[begin] == ' ')) begin++;
        while (begin + used < json->len && used < sizeof number - 1 && strchr("+-.0123456789eE", text[begin + used])) {
            number[used] = text[begin + used];
            used++;
        }
        return used > 0 ? strtod(number, NULL) : otherwise;
    }
    return otherwise;
}

static bool parameter(saggar_plugin_variables_borrow_variables_t variables, const char *name, uint32_t *shape,
                      size_t rank, saggar_plugin_variables_own_variable_t *variable, plugin_error_t *error) {
    model_plugin_string_t text;
    model_plugin_string_set(&text, name);
    saggar_plugin_variables_descriptor_t descriptor = {SAGGAR_PLUGIN_TENSORS_DATA_TYPE_FLOAT32, {shape, rank}};
    saggar_plugin_variables_initializer_t zeros = {.tag = SAGGAR_PLUGIN_VARIABLES_INITIALIZER_ZEROS};
    return saggar_plugin_variables_method_variables_get(variables, &text, &descriptor, &zeros,
                                                        SAGGAR_PLUGIN_VARIABLES_VARIABLE_KIND_PARAMETER, variable,
                                                        error);
}

bool network_open(network_t *network, network_config_t config, saggar_plugin_variables_borrow_variables_t variables,
                  plugin_error_t *error) {
    network->config = config;
    uint32_t shape[] = {config.height * config.width, config.classes};
    /* The loss is convex, so zeros are as good a start as any. */
    return parameter(variables, "weight", shape, 2, &network->weight, error) &&
           parameter(variables, "bias", shape + 1, 1, &network->bias, error);
}

bool network_build(const network_t *network, uint32_t batch, builder_t builder, network_operands_t *operands,
                   plugin_error_t *error) {
    network_config_t config = network->config;
    model_plugin_string_t name;
    model_plugin_string_set(&name, "image");
    uint32_t image_shape[] = {batch, config.height, config.width};
    uint32_t row_shape[] = {batch, config.height * config.width};
    saggar_plugin_graphs_descriptor_t image_type = {SAGGAR_PLUGIN_TENSORS_DATA_TYPE_UINT8, {image_shape, 3}};
    model_plugin_list_u32_t rows = {row_shape, 2};
    operand_t image, floats, scale, scaled, flat, product;
    return BUILD(input)(builder, &name, &image_type, &image, error) &&
           BUILD(cast)(builder, LEND(image), SAGGAR_PLUGIN_TENSORS_DATA_TYPE_FLOAT32, &floats, error) &&
           BUILD(scalar)(builder, SAGGAR_PLUGIN_TENSORS_DATA_TYPE_FLOAT32, 255.0, &scale, error) &&
           BUILD(div)(builder, LEND(floats), LEND(scale), &scaled, error) &&
           BUILD(reshape)(builder, LEND(scaled), &rows, &flat, error) &&
           BUILD(variable)(builder, saggar_plugin_variables_borrow_variable(network->weight), &operands->weight,
                           error) &&
           BUILD(variable)(builder, saggar_plugin_variables_borrow_variable(network->bias), &operands->bias, error) &&
           BUILD(matmul)(builder, LEND(flat), LEND(operands->weight), &product, error) &&
           BUILD(add)(builder, LEND(product), LEND(operands->bias), &operands->logits, error);
}
